package term

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/model"
)

// DurationFlag is a flag whose value is a duration such as 30s or 1h, or the word none. Value must not be nil when the
// flag is parsed. Given is true if the flag was set.
type DurationFlag struct {
	Value *model.Duration
	Given bool
}

// String implements pflag.Value.
func (v *DurationFlag) String() string {
	if v.Value == nil || !v.Given {
		return ""
	}
	return v.Value.String()
}

// Set implements pflag.Value.
func (v *DurationFlag) Set(text string) error {
	d, err := model.ParseDuration(text)
	if err == nil {
		*v.Value, v.Given = d, true
	}
	return err
}

// Type implements pflag.Value.
func (v *DurationFlag) Type() string { return "duration" }

// RegisterTTL adds the flag --ttl to cmd.
func (v *DurationFlag) RegisterTTL(cmd *cobra.Command, help string) {
	v.Value = new(model.Duration)
	cmd.Flags().Var(v, "ttl", help)
}

// Length returns the duration as a time.Duration. It returns 0 if the flag was not given.
func (v *DurationFlag) Length() time.Duration {
	if !v.Given {
		return 0
	}
	return time.Duration(*v.Value) * time.Millisecond
}
