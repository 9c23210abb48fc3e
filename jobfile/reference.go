package jobfile

import (
	"fmt"
	"strings"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// These are lines that several examples need to be valid, beside the key that the example shows.
const (
	withPort   = `port "http" {}`
	tcpCheck   = "type = \"tcp\"\nport = \"http\""
	withFacts  = `role_check { exec = ["/opt/db/facts"] }`
	withQuorum = "role = \"quorum\"\n" + withFacts
	onDisk     = `attribute = "node.label.disk"`
	onSSD      = onDisk + "\nvalue = \"ssd\""
)

// Reference returns the reference of job files in Markdown: a section for each block, with a table of its attributes.
// Blocks and attributes are in the order of jobKeys.
func Reference() string {
	var b strings.Builder
	keys, texts := allKeys(), allTexts()
	for _, k := range keys {
		if k.Type == "block" {
			b.WriteString("\n## " + strings.ReplaceAll(k.Path, ".", " ") + "\n\n" + blockText(k) +
				hclfile.Table(keys, texts, k.Path))
		}
	}
	return b.String()
}

func blockText(k hclfile.Key) string {
	name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
	for _, label := range k.Labels {
		name += fmt.Sprintf(" %q", strings.ToUpper(label))
	}
	text := "`" + name + " { }`"
	switch {
	case k.Required:
		text += ", needed once"
	case k.Repeated:
		text += ", any number of them"
	default:
		text += ", at most once"
	}
	return text + ".\n"
}

func allKeys() []hclfile.Key { return hclfile.Keys(jobKeys(&model.JobSpec{})...) }

// allTexts maps the path of each attribute to its text in the reference.
func allTexts() map[string]hclfile.KeyText {
	all := map[string]hclfile.KeyText{}
	for _, b := range blockTexts {
		for key, text := range b.keys {
			all[b.path+"."+key] = text
		}
	}
	return all
}

// blockTexts lists, for each block with attributes, the texts of these attributes in the reference. The maps are in
// reference_run.go, reference_place.go and reference_change.go.
var blockTexts = []struct {
	path string
	keys map[string]hclfile.KeyText
}{
	{"job", jobTexts},
	{"job.group", groupTexts},
	{"job.group.exec", execTexts},
	{"job.group.container", containerTexts},
	{"job.group.container.mount", mountTexts},
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
