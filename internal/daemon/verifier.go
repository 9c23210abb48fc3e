package daemon

import (
	"context"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/cluster"
)

// verifier converts the results of comparisons of states to the types of the API.
type verifier struct{ *cluster.Server }

// Verify implements httpapi.Verifier.
func (v verifier) Verify(ctx context.Context, patience time.Duration) (api.Verification, error) {
	found, err := v.Server.Verify(ctx, patience)
	if err != nil {
		return api.Verification{}, err
	}
	out := api.Verification{Verdict: found.Verdict.String(), Index: found.Index,
		Format: found.Format, Digest: found.Digest}
	for _, s := range found.Servers {
		one := api.VerifiedServer{
			Name: s.Name, ID: s.ID, Address: s.Address, Voter: s.Voter, Leader: s.Leader, Version: s.Version,
			Verdict: s.Verdict.String(), Index: s.Index, Digest: s.Digest, Detail: s.Detail,
		}
		for _, t := range s.Tables {
			one.Tables = append(one.Tables,
				api.TableDiff{Name: t.Name, Rows: t.A.Rows, Digest: t.A.Digest, ExpectedRows: t.B.Rows, ExpectedDigest: t.B.Digest})
		}
		out.Items = append(out.Items, one)
	}
	return out, nil
}

// Differing implements httpapi.Verifier.
func (v verifier) Differing() []api.DifferentState {
	found := v.Server.Differing()
	if len(found) == 0 {
		return nil
	}
	var out []api.DifferentState
	for _, s := range v.Servers() {
		if d, ok := found[s.ID]; ok {
			out = append(out,
				api.DifferentState{Name: s.Name, ID: s.ID, Index: d.Index, Time: d.At.UTC().Truncate(time.Millisecond)})
		}
	}
	return out
}
