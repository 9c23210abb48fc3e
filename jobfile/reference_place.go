package jobfile

import "github.com/outspan/outspan/internal/hclfile"

var constraintTexts = map[string]hclfile.KeyText{
	"attribute": {
		Means:   "`node.id`, `node.name`, `node.label.X` or `node.attr.X`",
		Example: `"node.label.disk"`, Beside: `value = "ssd"`,
	},
	"operator": {
		Means:   "`=`, `!=`, `<`, `<=`, `>`, `>=`, `regexp`, `in`, `not_in`, `is_set`, `is_not_set`",
		Default: `"="`, Example: `"!="`, Beside: onSSD,
	},
	"value": {
		Means:   "what it is compared with; for in and not_in a list with commas",
		Example: `"ssd"`, Beside: onDisk,
	},
}

var affinityTexts = map[string]hclfile.KeyText{
	"attribute": {
		Means:   "as of a constraint; nodes that fit are preferred",
		Example: `"node.label.disk"`, Beside: `value = "ssd"`,
	},
	"operator": {
		Means:   "as of a constraint",
		Default: `"="`, Example: `"!="`, Beside: onSSD,
	},
	"value": {Means: "as of a constraint", Example: `"ssd"`, Beside: onDisk},
	"weight": {
		Means:   "-100 to 100; below 0 such nodes are avoided",
		Default: "50", Example: "-20", Beside: onSSD,
	},
}

var spreadTexts = map[string]hclfile.KeyText{
	"attribute": {
		Means:   "instances are spread evenly over its values",
		Example: `"node.label.rack"`,
	},
}

var distinctTexts = map[string]hclfile.KeyText{
	"attribute": {Means: "no two instances share its value", Example: `"node.id"`},
}

var evictionTexts = map[string]hclfile.KeyText{
	"mode": {
		Means: "may an instance leave its node: `always`, `never`, `when` (all gates hold), `last`. Default:" +
			" by role",
		Example: `"never"`,
	},
	"order": {
		Means:   "`surge` (the new one first) or `stop_first`. Default: by role",
		Example: `"stop_first"`,
	},
	"surge_wait": {
		Means:   "the new one must be `ready`, or only `started`",
		Default: `"ready"`, Example: `"started"`,
	},
	"when": {
		Means:   "gates: see [facts and gates](roles.md#facts-and-gates). Default: by role",
		Example: `["!self.leader"]`, With: withQuorum,
	},
}

var replacementTexts = map[string]hclfile.KeyText{
	"mode": {
		Means:   "is a lost one replaced: `always`, `never`, `when`, `restart`. Default: by role",
		Example: `"never"`,
	},
	"identity": {
		Means:   "`new` or `same` slot and member id. Default: by role",
		Example: `"same"`,
	},
	"data": {
		Means: "with a local volume: `empty`, so that a replacement may start empty on another machine, filled by the " +
			"others; or `keep`. Default: by role",
		Example: `"keep"`,
	},
	"when": {
		Means:   "gates. Default: by role",
		Example: `["old.confirmed_stopped"]`, With: withQuorum,
	},
}

var tolerationTexts = map[string]hclfile.KeyText{
	"unreachable": {
		Means:   "how long an instance on an offline node is waited for. Default: by role",
		Example: `"5m"`,
	},
	"not_ready": {
		Means:   "how long it stays on a sick node; `forever`: always. Default: by role",
		Example: `"1m"`,
	},
}

var exclusiveTexts = map[string]hclfile.KeyText{
	"lease": {
		Means:   "the program ends by itself so long after its node has lost the servers; at least 10s",
		Default: `"1m"`, Example: `"30s"`,
	},
}

var budgetTexts = map[string]hclfile.KeyText{
	"min_ready": {
		Means:   "instances that stay ready during planned stops: a number, or a percentage of `count`",
		Example: `"50%"`,
	},
	"max_down": {Means: "instances that may be down at once", Example: "1"},
	"blocking": {
		Means:   "accept that it allows nothing: see [budgets](budgets.md)",
		Default: "false", Example: "true", Beside: "max_down = 1",
	},
}

var rateTexts = map[string]hclfile.KeyText{
	"max": {
		Means:   "planned stops within the window",
		Example: "1", Beside: `window = "1m"`,
	},
	"window": {Means: "of the rate", Example: `"5m"`, Beside: "max = 1"},
}
