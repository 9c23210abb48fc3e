package api

import (
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// Role is a named list of what one may do.
type Role struct {
	Name    rights.RoleName `json:"name"`
	Builtin bool            `json:"builtin" doc:"it can't be changed"`
	Allow   []rights.Grant  `json:"allow"`
	Index   uint64          `json:"index" doc:"the log entry of its last change; 0 if it is built in"`
}

// RoleBody makes a role, or replaces it.
type RoleBody struct {
	Allow []rights.Grant `json:"allow"`
}

// RoleReply is the answer to a change of a role.
type RoleReply struct {
	Written
	Role    *Role          `json:"role,omitempty" doc:"absent when it was removed"`
	Changes []RightsChange `json:"changes" doc:"what known people gain and lose"`
	Notes   []string       `json:"notes,omitempty" doc:"what the changes don't show, for people"`
}

// Binding gives a role to people or to a group.
type Binding struct {
	Role      rights.RoleName `json:"role"`
	To        string          `json:"to" doc:"a pattern for subjects, such as cert:alice or cert:*, or group:NAME"`
	CreatedBy model.Actor     `json:"created_by" doc:"empty for the one with which rights begin"`
	Index     uint64          `json:"index" doc:"the log entry that made it; 0 while nobody has changed rights"`
}

// BindingBody names a binding.
type BindingBody struct {
	Role rights.RoleName `json:"role"`
	To   string          `json:"to" doc:"a pattern for subjects, such as cert:alice or cert:*, or group:NAME"`
}

// BindingReply is the answer to a change of a binding.
type BindingReply struct {
	Written
	Changes []RightsChange `json:"changes" doc:"what known people gain and lose"`
	Notes   []string       `json:"notes,omitempty" doc:"what the changes don't show, for people"`
}

// RightsBody makes or replaces roles, and then gives roles, all at once or not at all.
type RightsBody struct {
	Roles    []NamedRole   `json:"roles,omitempty"`
	Bindings []BindingBody `json:"bindings,omitempty" doc:"also to the roles of this body"`
}

// NamedRole is a role to make or to replace.
type NamedRole struct {
	Name  rights.RoleName `json:"name"`
	Allow []rights.Grant  `json:"allow"`
}

// RightsReply is the answer to a change of several roles and bindings.
type RightsReply struct {
	Written
	Roles    []Role         `json:"roles" doc:"the roles of the body, as they are now"`
	Bindings []BindingBody  `json:"bindings" doc:"those of the body"`
	Changes  []RightsChange `json:"changes" doc:"what known people gain and lose by all of it"`
	Notes    []string       `json:"notes,omitempty" doc:"what the changes don't show, for people"`
}

// RightsChange is what a known person gains and loses by a change of rights. Known are those with a certificate of the
// cluster, those whom a binding names, and the caller; at most 200 of them.
type RightsChange struct {
	Subject string        `json:"subject"`
	Gains   []rights.Verb `json:"gains" doc:"on something, or on more than before"`
	Loses   []rights.Verb `json:"loses" doc:"on everything, or on all but what names match"`
	Differs []rights.Verb `json:"differs,omitempty" doc:"on something before and after, by other lists"`
	Asks    []AskChange   `json:"asks,omitempty" doc:"what submitted jobs may ask for, where that changes for somebody who may submit jobs before and after"`
}

// AskChange is a change of one list of a role about what submitted jobs may ask for. Before and After have the patterns
// of all grants that somebody has.
type AskChange struct {
	List   string   `json:"list" example:"ports"`
	Before []string `json:"before" doc:"* stands for everything; empty: nothing"`
	After  []string `json:"after" doc:"* stands for everything; empty: nothing"`
}

// Identity is who the caller is, and what it may do.
type Identity struct {
	Subject string            `json:"subject"`
	Roles   []rights.RoleName `json:"roles"`
	Verbs   []rights.Verb     `json:"verbs" doc:"what it may do on something at least"`
	Grants  []HeldGrant       `json:"grants" doc:"on what it may do it, and by which roles"`
	Token   *AccessToken      `json:"token,omitempty" doc:"the access token by which it calls"`
	Local   bool              `json:"local" doc:"it uses the unix socket of a server, and may do everything"`
}

// HeldGrant is a grant of a role that somebody has. Each list restricts it to things that have such a name, or to
// submitted jobs that ask for nothing else.
type HeldGrant struct {
	Role    rights.RoleName `json:"role"`
	Binding string          `json:"binding,omitempty" doc:"to whom the role is given; absent: by the access token"`
	Verbs   []rights.Verb   `json:"verbs"`
	Jobs    []string        `json:"jobs,omitempty"`
	Nodes   []string        `json:"nodes,omitempty"`
	Classes []string        `json:"classes,omitempty"`
	Users   []string        `json:"users,omitempty" doc:"as which users submitted jobs may run programs; absent: a job that names none"`

	VolumePaths []string `json:"volume_paths,omitempty" doc:"at and below which paths submitted jobs may have volumes"`
	Ports       []string `json:"ports,omitempty" doc:"which static and exposed ports submitted jobs may have"`
	Services    []string `json:"services,omitempty" doc:"which services submitted jobs may have"`
	Budgets     []string `json:"budgets,omitempty" doc:"which shared budgets submitted jobs may join"`
}

// Permission says whether a subject may do something.
type Permission struct {
	Subject string          `json:"subject"`
	Verb    rights.Verb     `json:"verb"`
	Object  string          `json:"object" doc:"empty: on anything at all"`
	Allowed bool            `json:"allowed"`
	Role    rights.RoleName `json:"role" doc:"that allows it"`
	Binding string          `json:"binding" doc:"to whom that role is given"`
	Grants  []HeldGrant     `json:"grants,omitempty" doc:"if it is allowed: the grants that allow it; one that no list restricts comes alone"`
	Lacking []string        `json:"lacking,omitempty" doc:"if it is refused: what of the job is not allowed, of the parameters ask"`
	Would   []BindingBody   `json:"would" doc:"if it is refused: bindings that allow it to others; only for those who may read rights"`
}

// Provider is an OpenID Connect provider at which people can sign in.
type Provider struct {
	Kind     string   `json:"kind" enum:"oidc"`
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"client_id"`
	Scopes   []string `json:"scopes" doc:"to ask for"`
	CAPEM    string   `json:"ca_pem,omitempty" doc:"the CA of the provider's certificate; absent: the CAs of the system"`
}

// Providers lists the providers at which people can sign in.
type Providers struct {
	Items []Provider `json:"items"`
	Index uint64     `json:"index"`
}

// LoginBody signs somebody in.
type LoginBody struct {
	IDToken string `json:"id_token" doc:"that the provider has made for the client a few minutes ago at most; it is good for one login"`
}

// LoginReply is the answer to a login.
type LoginReply struct {
	Written
	Text     string   `json:"text,omitempty" doc:"the secret text of the access token; only this answer has it, and a dry run has none"`
	Identity Identity `json:"identity"`
}

// LogoutReply is the answer to a logout.
type LogoutReply struct{ Written }
