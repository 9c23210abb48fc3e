package fsm

// sharing makes equal strings share one piece of memory. Otherwise each decoded row has its own copy of its node's id,
// its group's id and every enumerated value. Sharing makes a state of 100,000 instances 20 MB smaller and saves the
// garbage collector a million objects.
type sharing map[string]string

// share replaces the string at p by the first equal one that was seen.
func share[K ~string](texts sharing, p *K) {
	if kept, ok := texts[string(*p)]; ok {
		*p = K(kept)
	} else {
		texts[string(*p)] = string(*p)
	}
}

// shareTexts shares the strings that many rows have in common. Strings that only this row has, such as its id, are not
// shared with other rows.
func (i *Instance) shareTexts(texts sharing) {
	if i.Status.ID == i.ID {
		// equal, but now in the same memory
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
