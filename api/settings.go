package api

import (
	"github.com/outspan/outspan/model"
)

// Settings are the replicated settings of the cluster.
type Settings struct {
	model.Settings
	Index uint64 `json:"index" doc:"of their last change: give it as if_index"`
}

// SettingsReply is the answer to a change of settings.
type SettingsReply struct {
	Written
	Settings Settings `json:"settings"`
}

// PauseBody says what to pause or resume.
type PauseBody struct {
	What string `json:"what,omitempty" enum:"actuation,pause,hold,restore" doc:"pause (or actuation): carry decisions out again. hold: end the brake against mass eviction. restore: confirm that a restored snapshot is right, which ends what runs and the servers don't know. Default: pause actuation; resume what is in force, if that is one thing and no restore"`
}
