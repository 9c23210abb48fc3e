package fsm

// sharing makes equal strings of decoded rows share memory. Without it, each row has its own copy of its node's id, its
// group's id and every enumerated value. With it, a state of 100,000 instances is 20 MB smaller, and the garbage
// collector has a million fewer objects to handle.
type sharing map[string]string

// share replaces the string at p by an equal one from texts, or adds it to texts.
func share[K ~string](texts sharing, p *K) {
	if kept, ok := texts[string(*p)]; ok {
		*p = K(kept)
	} else {
		texts[string(*p)] = string(*p)
	}
}

// shareTexts shares the strings that many rows have in common. It does not share strings that only this row has, such
// as its id, with other rows.
func (i *Instance) shareTexts(texts sharing) {
	if i.Status.ID == i.ID {
		// an equal string, but in the same memory
		i.Status.ID = i.ID
	}
	share(texts, &i.Group)
	share(texts, &i.Node)
	share(texts, &i.Desired)
	share(texts, &i.Status.Observed)
	share(texts, &i.Cause)
	share(texts, &i.Marks.StopCause)
	share(texts, &i.Links.Deployment)
}
