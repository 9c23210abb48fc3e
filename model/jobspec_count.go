package model

// CheckCount makes only those checks of JobSpec.Check that depend on a group's count. Thus the count of a stored spec
// can change even if this program would refuse the spec for another reason. The error's Key is relative to the group.
// Code: invalid.
func (g *GroupSpec) CheckCount() *Error {
	for _, test := range []func() *Error{g.checkCount, g.checkCanary, g.checkAllows} {
		if refusal := test(); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (g *GroupSpec) checkCount() *Error {
	if g.Count < 0 || g.Count > maxCount {
		return RefuseAt(KeyPath("count"), "count is %d; it must be 0 to %d", g.Count, maxCount)
	}
	return nil
}

func (g *GroupSpec) checkCanary() *Error {
	if g.Update.Canary > g.Count {
		return RefuseAt(KeyPath("update", "canary"),
			"update.canary is %d, more than the count of %d", g.Update.Canary, g.Count)
	}
	return nil
}

// checkAllows refuses a budget with which no drain could ever finish, unless the budget has Blocking set.
func (g *GroupSpec) checkAllows() *Error {
	b := g.Budget
	if b == nil {
		return nil
	}
	r := ResolveBudget(b, DefaultMaxDown(), g.Count)
	if g.Count > 0 && r.MaxDown == 0 && g.StopsFirst() && !b.Blocking {
		return RefuseAt(KeyPath("budget"),
			"budget keeps %d of %d ready and the order is stop_first, so no drain could ever finish",
			r.MinReady, g.Count).
			WithHint("allow one to be down, use order = \"surge\", or write blocking = true in the budget")
	}
	return nil
}
