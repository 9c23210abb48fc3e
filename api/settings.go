package api

import (
	"github.com/outspan/outspan/model"
)

// Settings are the replicated policy of the cluster.
type Settings struct {
	model.Settings
	Index uint64 `json:"index" doc:"of their last change: give it as if_index"`
}

// SettingsReply is the answer to a change of settings.
type SettingsReply struct {
	Written
	Settings Settings `json:"settings"`
}
