package plant

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// proof says which scenario catches a bug.
type proof struct {
	bug   Bug
	room  string // package whose tests have the scenario
	test  string
	seeds []string // tried one after another
	want  string   // text in the failure that names the invariant
}

// many lists seeds for scenarios that catch their bug in only about two of three runs, because the result depends on
// how goroutines are scheduled and not on the seed.
var many = []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}

func proofs() []proof {
	return []proof{
		{bug: WedgedFollower, room: "e2e/bubble", test: "TestFollowerWhoseDiskFailsOnce",
			seeds: []string{"1", "2"}, want: "S4: "},
		{bug: HungDisk, room: "cluster", test: "TestStorm", seeds: []string{"33", "35", "33"}, want: "L1: "},
		{bug: VerifyLeader, room: "cluster", test: "TestStandstill", seeds: many, want: "S4: "},
		{bug: DivergentSnapshot, room: "e2e/bubble", test: "TestDivergentTailGetsASnapshot",
			seeds: []string{"1", "2"}, want: "S4: "},
		{bug: StuckTransfer, room: "cluster", test: "TestInterruptedTransfer", seeds: []string{"1", "2", "3"}, want: "L1: "},
		{bug: UnreadNotify, room: "cluster", test: "TestStorm", seeds: many, want: "L1: "},

		{bug: BudgetBeforeApply, room: "sim", test: "TestSeed",
			seeds: []string{"7002", "7001", "7003", "7004"}, want: "S3: "},
		{bug: StaleLastCopy, room: "sim", test: "TestSeed", seeds: []string{"7110", "7047", "7015", "7019"}, want: "S6: "},
		{bug: OfflineByGossip, room: "sim", test: "TestSeed", seeds: []string{"7003", "7005", "7006", "7007"}, want: "S13: "},
		{bug: ReplaceBeforeFencing, room: "sim", test: "TestSeed",
			seeds: []string{"7018", "7025", "7032", "7034"}, want: "S2: "},
		{bug: NotReadyAtOnce, room: "sim", test: "TestSeed", seeds: []string{"7002", "7004", "7006", "7009"}, want: "S6: "},
		{bug: PlacedBeforePulled, room: "fsm", test: "TestImageIsThereFirst", seeds: []string{"1"}, want: "S21: "},
		{bug: RoomNotHeld, room: "fsm", test: "TestPullHoldsItsRoom", seeds: []string{"1"}, want: "S1: "},
		{bug: ResolvedTwice, room: "fsm", test: "TestPullNamesTheDigest", seeds: []string{"1"}, want: "S21: "},
		{bug: MapOrder, room: "sim", test: "TestSeed", seeds: []string{"7002", "7003", "7000"}, want: "S5: "},
		{bug: SkipUnknown, room: "cluster", test: "TestDamagedEntry", seeds: []string{"1"}, want: "S5: "},

		{bug: RestoreForgives, room: "cluster", test: "TestRestoreKeepsTrust", seeds: []string{"1"}, want: "S19: "},
		{bug: DroppedKey, room: "fsm", test: "TestDroppedKeyStaysDropped", seeds: []string{"1"}, want: "S19: "},
		{bug: EarlyDrop, room: "trust", test: "TestRotateCA", seeds: []string{"1"}, want: "S20: "},
		{bug: SpentToken, room: "fsm", test: "TestSpentTokenAdmitsNobody", seeds: []string{"1"}, want: "S19: "},
		{bug: VoidCounts, room: "trust", test: "TestRevokedServerReturns", seeds: []string{"1"}, want: "S19: "},
		{bug: ReplacedKey, room: "fsm", test: "TestReplacedKeyRenewsNothing", seeds: []string{"1"}, want: "S19: "},

		{bug: EpochAgain, room: "fsm", test: "TestEpochsNeverComeAgain", seeds: []string{"1"}, want: "S8: "},
		{bug: GenerationsOnly, room: "fsm", test: "TestGenerationsThatGoBack", seeds: []string{"1"}, want: "S8: "},
		{bug: GuessedSize, room: "reconcile", test: "TestDrainOfManyMembersEnds", seeds: []string{"1"}, want: "L5: "},
		{bug: OldCopyByClock, room: "reconcile", test: "TestScenarios/volume_old_copy", seeds: []string{"1"}, want: "S16: "},
		{bug: ForgottenVolume, room: "reconcile", test: "TestScenarios/volume_forget", seeds: []string{"1"}, want: "S16: "},
		{bug: DrainForgetsMoves, room: "reconcile", test: "TestScenarios/drain_transfer",
			seeds: []string{"1"}, want: "S16: "},
		{bug: PrefixInWrites, room: "transport/httpapi", test: "TestWritesTakeWholeNames",
			seeds: []string{"1"}, want: "S18: "},
		{bug: AbsentNodesCount, room: "reconcile", test: "TestScenarios/rollout_system_away",
			seeds: []string{"1"}, want: "L6: "},
		{bug: LeaseByRole, room: "agent", test: "TestOneHolderWithoutServers", seeds: []string{"1"}, want: "S17: "},
		{bug: OlderLineage, room: "cluster", test: "TestRecoverSuperseded", seeds: []string{"1"}, want: "S4: "},
		{bug: ClonedMachine, room: "fsm", test: "TestAnotherMachineTakesNoNode", seeds: []string{"1"}, want: "S2: "},
	}
}

// Every bug that can be planted has exactly one proof, and the proof is complete.
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

// docs/proof.md has a row for each proof, with the bug, the test and the invariant.
func TestDocsHaveTheTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range proofs() {
		if row := fmt.Sprintf("| %#q | %#q of %s | %s |", p.bug, p.test, p.room,
			strings.TrimSuffix(p.want, ": ")); !strings.Contains(string(text), "\n"+row) {
			t.Errorf("docs/proof.md has no row that begins: %s", row)
		}
	}
}
