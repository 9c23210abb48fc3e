package jobfile

import "github.com/outspan/outspan/internal/hclfile"

var stopTexts = map[string]hclfile.KeyText{
	"signal": {
		Means:   "asks the program to end. With SIGTERM, a container gets the stop signal of its image, if that names one",
		Default: `"SIGTERM"`, Example: `"SIGINT"`,
	},
	"grace": {
		Means:   "after the signal; what is left then is killed",
		Default: `"10s"`, Example: `"1m"`,
	},
	"drain_delay": {
		Means:   "between its withdrawal from services and the signal",
		Default: `"1s"`, Example: `"5s"`,
	},
}

var restartTexts = map[string]hclfile.KeyText{
	"attempts": {
		Means:   "restarts in place within the interval; after that it has failed",
		Default: "3", Example: "5",
	},
	"interval": {
		Means:   "the time within which failures count for `attempts`",
		Default: `"10m"`, Example: `"30m"`,
	},
	"delay": {
		Means:   "before the first restart; it grows",
		Default: `"5s"`, Example: `"1s"`,
	},
}

var rescheduleTexts = map[string]hclfile.KeyText{
	"attempts": {
		Means: "how many failed instances of a version are replaced at once. Those of the last half hour count, or of " +
			"`interval` if that is longer. " +
			"Each further one waits",
		Default: "3", Example: "10",
	},
	"interval": {
		Means:   "how long the first further one waits; the wait doubles with each one",
		Default: `"10m"`, Example: `"1h"`,
	},
}

var updateTexts = map[string]hclfile.KeyText{
	"max_surge": {
		Means:   "further instances during a rollout. Default: 1, or 0 where `max_unavailable` is given",
		Example: "2",
	},
	"max_unavailable": {
		Means:   "instances that may be missing during a rollout",
		Default: "0", Example: "1",
	},
	"order": {
		Means:   "`surge` or `stop_first`. Default: that of `eviction`",
		Example: `"stop_first"`,
	},
	"min_healthy": {
		Means: "how long a new instance must stay ready; less than `deadline`. Default: 0s; 5s, or half the `deadline` " +
			"if that is shorter, where `auto_revert` is set and the group has no check",
		Example: `"30s"`,
	},
	"deadline": {
		Means:   "without progress for so long the rollout has failed",
		Default: `"10m"`, Example: `"30m"`,
	},
	"auto_revert": {
		Means:   "go back to the last good version then",
		Default: "false", Example: "true",
	},
	"canary": {
		Means:   "instances of the new version that wait for `outspan deployment promote`",
		Default: "0", Example: "1",
	},
}
