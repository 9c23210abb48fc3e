package jobfile

import "github.com/outspan/outspan/internal/hclfile"

// Attributes and blocks that some examples need in addition.
const (
	withPort   = `port "http" {}`
	tcpCheck   = "type = \"tcp\"\nport = \"http\""
	withFacts  = `role_check { exec = ["/opt/db/facts"] }`
	withQuorum = "role = \"quorum\"\n" + withFacts
	onDisk     = `attribute = "node.label.disk"`
	onSSD      = onDisk + "\nvalue = \"ssd\""
)

// Texts returns a text for each attribute that Keys lists.
func Texts() map[string]hclfile.KeyText {
	all := map[string]hclfile.KeyText{}
	for _, b := range blockTexts {
		for key, text := range b.keys {
			all[b.path+"."+key] = text
		}
	}
	return all
}

// blockTexts has the texts of the blocks of a job file, by path. The tables are in three files: reference_run.go,
// reference_place.go and reference_change.go.
var blockTexts = []struct {
	path string
	keys map[string]hclfile.KeyText
}{
	{"job", jobTexts},
	{"job.group", groupTexts},
	{"job.group.exec", execTexts},
	{"job.group.resources", resourceTexts},
	{"job.group.port", portTexts},
	{"job.group.service", serviceTexts},
	{"job.group.check", checkTexts},
	{"job.group.volume", volumeTexts},
	{"job.group.stop", stopTexts},
	{"job.group.restart", restartTexts},
	{"job.group.reschedule", rescheduleTexts},
	{"job.group.update", updateTexts},
	{"job.group.budget", budgetTexts},
	{"job.group.budget.rate", rateTexts},
	{"job.group.eviction", evictionTexts},
	{"job.group.replacement", replacementTexts},
	{"job.group.toleration", tolerationTexts},
	{"job.group.exclusive", exclusiveTexts},
	{"job.group.constraint", constraintTexts},
	{"job.group.affinity", affinityTexts},
	{"job.group.spread", spreadTexts},
	{"job.group.distinct", distinctTexts},
	{"job.group.role_check", roleCheckTexts},
	{"job.group.peers", peersTexts},
	{"job.group.hook", hookTexts},
}
