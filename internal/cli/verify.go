package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/model"
)

// codeNotVerified is the outcome of a verification that could not compare every server.
const codeNotVerified model.Code = "not_verified"

func serverVerify(a *app) *cobra.Command {
	patience := 10 * time.Second
	cmd := &cobra.Command{
		Use: "verify", Short: "compare the states of all servers", Args: exactly(),
		Long: `Compares the digests of all servers' states at one index; nothing is written, and no leader is needed. Servers do the same by
themselves at their start, every ten minutes, and after a snapshot or a restore. One whose state a majority of the voters contradicts
stops, leaves a report in its data directory, and does not start on that state again.
Exit code 0 when all are equal, 7 when one differs, 6 when some could not be compared.`,
		Example: "outspan server verify\noutspan server verify --timeout 60s --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.verifyServers(cmd.Context(), patience) },
	}
	cmd.Flags().DurationVar(&patience, "timeout", patience, "how long to wait for servers that are behind; at most 60s")
	return cmd
}

func (a *app) verifyServers(ctx context.Context, patience time.Duration) error {
	got, err := a.client().Members.Verify(ctx, patience)
	if err != nil {
		return err
	}
	v := got.Value
	var names []string
	for _, s := range v.Items {
		names = append(names, s.Name)
	}
	if err := a.show(shown{json: got.Raw, names: names, text: func(p *page) { p.verification(v) }}); err != nil {
		return err
	}
	return verified(v)
}

func (p *page) verification(v api.Verification) {
	rows(p, v.Items, []column[api.VerifiedServer]{
		{head: "name", cell: func(s api.VerifiedServer) string { return s.Name }},
		{head: "id", wide: true, cell: func(s api.VerifiedServer) string { return string(s.ID) }},
		{head: "voter", cell: func(s api.VerifiedServer) string { return yesNo(s.Voter) }},
		{head: "leader", cell: func(s api.VerifiedServer) string { return yesNo(s.Leader) }},
		{head: "index", cell: func(s api.VerifiedServer) string { return number(s.Index) }},
		{head: "digest", cell: func(s api.VerifiedServer) string { return short(s.Digest) }},
		{head: "verdict", cell: func(s api.VerifiedServer) string { return shout(s.Verdict) }},
		{head: "version", wide: true, cell: func(s api.VerifiedServer) string { return s.Version }},
		{head: "detail", cell: func(s api.VerifiedServer) string { return s.Detail }},
	})
	for _, s := range v.Items {
		if len(s.Tables) == 0 {
			continue
		}
		p.section("Tables of %s that differ", s.Name)
		rows(p, s.Tables, []column[api.TableDiff]{
			{head: "table", cell: func(t api.TableDiff) string { return t.Name }},
			{head: "rows", cell: func(t api.TableDiff) string { return fmt.Sprint(t.Rows) }},
			{head: "digest", cell: func(t api.TableDiff) string { return short(t.Digest) }},
			{head: "expected rows", cell: func(t api.TableDiff) string { return fmt.Sprint(t.ExpectedRows) }},
			{head: "expected digest", cell: func(t api.TableDiff) string { return short(t.ExpectedDigest) }},
		})
	}
}

// short is enough of a digest to see that two are not the same.
func short(digest string) string { return digest[:min(len(digest), 12)] }

// shout makes the verdict that matters stand out.
func shout(verdict string) string {
	if verdict == string(cluster.VerdictDiffers) {
		return strings.ToUpper(verdict)
	}
	return verdict
}

// verified turns what was found into the exit code, and says what to do.
func verified(v api.Verification) error {
	var differ, missing []string
	for _, s := range v.Items {
		switch cluster.Verdict(s.Verdict) {
		case cluster.VerdictEqual:
		case cluster.VerdictDiffers:
			differ = append(differ, s.Name)
		default:
			missing = append(missing, s.Name)
		}
	}
	switch cluster.Verdict(v.Verdict) {
	case cluster.VerdictEqual:
		return nil
	case cluster.VerdictUndecided:
		return model.Refuse(model.CodeStateDiffers, "servers differ, and no state has a majority of the voters: %s", strings.Join(differ, ", ")).
			WithHint("bring the other voters back: then it is known who is wrong. Before that, save a snapshot and copy the data directories")
	case cluster.VerdictDiffers:
		return model.Refuse(model.CodeStateDiffers, "the majority of the voters contradicts: %s", strings.Join(differ, ", ")).
			WithHint("such a server stops by itself and says in its log how it comes back; it keeps a report in state-differs in its data_dir")
	}
	return model.Refuse(codeNotVerified, "not compared: %s; the others are equal", strings.Join(missing, ", ")).
		WithHint("try again when they answer, with a longer --timeout for those that are behind; see: outspan server members")
}
