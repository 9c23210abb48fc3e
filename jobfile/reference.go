package jobfile

import "github.com/outspan/outspan/internal/hclfile"

// What examples need beside them.
const (
	withPort   = `port "http" {}`
	tcpCheck   = "type = \"tcp\"\nport = \"http\""
	withFacts  = `role_check { exec = ["/opt/db/facts"] }`
	withQuorum = "role = \"quorum\"\n" + withFacts
	onDisk     = `attribute = "node.label.disk"`
	onSSD      = onDisk + "\nvalue = \"ssd\""
)

// Texts has a text for each attribute that Keys lists. The texts of a block stand in a table of their own.
func Texts() map[string]hclfile.KeyText {
	all := map[string]hclfile.KeyText{}
	for _, b := range blockTexts {
		for key, text := range b.keys {
			all[b.path+"."+key] = text
		}
	}
	return all
}

// blockTexts are the blocks of a job file by their path. What runs, where and when it may stop, and how it changes
// stand in three files.
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
