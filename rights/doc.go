// Package rights decides who may do what, from roles and bindings. It has no state and no clock.
//
// A [Role] is a list of grants. A [Grant] allows verbs, on all things or on those whose names match. A [Binding] gives
// a role to subjects or groups. A [Book] has all of them, and answers. What no grant allows is refused: nothing takes a
// right away, so the order of grants means nothing.
package rights
