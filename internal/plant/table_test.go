package plant

import "testing"

// proof is a row of the table: which scenario catches a bug.
type proof struct {
	bug   Bug
	room  string   // whose tests have the scenario
	test  string   // that is it
	seeds []string // tried in turn
	want  string   // in the failure: the invariant
	env   []string // what the test is told besides
}

func proofs() []proof {
	scenario := func(name string) []string { return []string{"OUTSPAN_SCENARIO=" + name} }
	return []proof{
		{bug: WedgedFollower, room: "cluster", test: "TestStorm", seeds: []string{"31", "35", "36", "32", "31", "35", "36", "32"}, want: "L1: "},
		{bug: HungDisk, room: "cluster", test: "TestStorm", seeds: []string{"33", "35", "33"}, want: "L1: "},
		{bug: VerifyLeader, room: "cluster", test: "TestStandstill", seeds: []string{"6", "2", "1"}, want: "S4: "},
		{bug: DivergentSnapshot, room: "cluster", test: "TestStorm", seeds: []string{"35", "35", "35"}, want: "L1: "},
		{bug: StuckTransfer, room: "cluster", test: "TestStorm", seeds: []string{"31", "36", "31", "36", "31"}, want: "L1: "},
		{bug: UnreadNotify, room: "cluster", test: "TestStorm", seeds: []string{"31", "38", "31", "38"}, want: "L1: "},

		{bug: BudgetBeforeApply, room: "sim", test: "TestSeed", seeds: []string{"75"}, env: scenario("failovers"), want: "S3: "},
		{bug: StaleLastCopy, room: "sim", test: "TestSeed", seeds: []string{"6", "9", "11"}, env: scenario("cordons"), want: "S6: "},
		{bug: OfflineByGossip, room: "sim", test: "TestSeed", seeds: []string{"5005"}, env: scenario("idle"), want: "S13: "},
		{bug: ReplaceBeforeFencing, room: "sim", test: "TestSeed", seeds: []string{"8"}, env: scenario("moves"), want: "S2: "},
		{bug: MapOrder, room: "sim", test: "TestSeed", seeds: []string{"1", "2", "4"}, env: scenario("mixed"), want: "S5: "},
		{bug: SkipUnknown, room: "cluster", test: "TestDamagedEntry", seeds: []string{"1"}, want: "S5: "},
	}
}

// Every bug that can be planted has a row that proves that it is caught.
func TestTableIsComplete(t *testing.T) {
	rows := map[Bug]bool{}
	for _, p := range proofs() {
		if !p.bug.Valid() || rows[p.bug] || p.room == "" || p.test == "" || len(p.seeds) == 0 || p.want == "" {
			t.Errorf("the row of %s is incomplete, or there are two", p.bug)
		}
		rows[p.bug] = true
	}
	for _, b := range All() {
		if !rows[b] {
			t.Errorf("%s has no row: nothing shows that it is caught", b)
		}
	}
}
