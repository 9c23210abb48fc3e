package local

import (
	"fmt"
	"os"
	"strings"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// WriteConfigDocs writes the reference of the settings, and of the files of servers and agents, to path.
func WriteConfigDocs(path string) error {
	var b strings.Builder
	b.WriteString(
		"# Settings, and the files of servers and agents\n\nMade from the program by `make docs`; a test parses every " +
			"example and compares every default.\n\n" +
			"Settings are the policy of the whole cluster, kept by the servers. `outspan settings get` shows them, `outspan " +
			"settings set KEY=VALUE`\n" +
			"changes them. The block `settings { }` of a server's file seeds them once, when the cluster begins. What a file " +
			"says of one process counts\n" +
			"for that process alone, and from its next start on, unless it says that SIGHUP reloads it.\n\n" +
			"A duration is a number with a unit, `\"30s\"`, `\"5m\"`, `\"1h\"`, `\"7d\"`. A size is `\"128MiB\"` or " +
			"`\"2GiB\"`. A rate is stops and a window, " +
			"`\"5/1m\"`, or `\"none\"`.\n\n" +
			"# Settings\n\n| key | takes | default | unit | meaning |\n|---|---|---|---|---|\n")
	for _, s := range config.SettingTexts() {
		means := s.Means
		switch s.File {
		case s.Key:
		case "":
			means += ". It can't stand in a file"
		default:
			means += fmt.Sprintf(". In a file: `%s = %s`", s.File, s.Default)
		}
		b.WriteString(hclfile.TableRow("`"+s.Key+"`", s.Type, "`"+settingDefault(s)+"`", s.Unit, means))
	}
	b.WriteString("\n" + presetTable() + "\n# Files\n\n" +
		"`outspan server run --config FILE|DIR` and `outspan agent run --config FILE|DIR` read a file, or all `*.hcl` of a " +
		"directory in the " +
		"order of their names.\nOne process may be both. `outspan config validate` checks files, `outspan config show` " +
		"prints what they come to. " +
		"Examples: [after outspan up](../examples/managed.hcl); with a CA of your own, " +
		"[server](../examples/server.hcl) and [agent](../examples/agent.hcl).\n")
	b.WriteString(config.Reference())
	b.WriteString("\n## settings\n\nThe settings above, by their names in a file: they seed a new cluster.\n")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write the reference: %w", err)
	}
	return nil
}

func presetTable() string {
	var b strings.Builder
	b.WriteString("## Presets of the rescheduler\n\nWith `off` it moves nothing by itself; what a person asks for is " +
		"done as with `balanced`.\n\n" +
		"| preset | `rescheduler_gain` | `rescheduler_min_age` | `rescheduler_cooldown` | `rescheduler_moves` | " +
		"`rescheduler_cycle` | " +
		"of a budget left untouched |\n|---|---|---|---|---|---|---|\n")
	for _, preset := range model.Reschedulers() {
		r := (&model.Settings{Rescheduler: preset}).Rescheduling()
		if r.On {
			b.WriteString(hclfile.TableRow("`"+preset+"`", fmt.Sprint(r.Gain), r.MinAge.String(),
				r.Cooldown.String(), fmt.Sprint(r.Moves),
				r.Cycle.String(), fmt.Sprintf("%d %%", r.Reserve)))
		}
	}
	return b.String()
}

// settingDefault returns a setting's default as the command settings get shows it: without quotes, and sizes in bytes.
func settingDefault(s config.SettingText) string {
	text := strings.Trim(s.Default, `"`)
	if s.Type == "size" {
		if bytes, err := model.ParseSize(text); err == nil {
			return fmt.Sprint(bytes)
		}
	}
	return text
}
