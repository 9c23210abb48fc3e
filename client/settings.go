package client

import (
	"context"
	"net/http"

	"github.com/outspan/outspan/api"
)

// Settings are the operations on the replicated settings of the cluster.
type Settings struct{ calls }

// Get returns the settings.
func (s Settings) Get(ctx context.Context, o ReadOptions) (Response[api.Settings], error) {
	return read[api.Settings](ctx, s.calls, route("settings"), o.query())
}

// Set changes the given settings, named by their JSON fields. All others keep their values.
func (s Settings) Set(
	ctx context.Context, changes map[string]any, o ChangeOptions,
) (Response[api.SettingsReply], error) {
	return write[api.SettingsReply](ctx, s.calls, http.MethodPut, route("settings"), o.query(), changes)
}

// Pause stops the servers from carrying out decisions. They still compute decisions.
func (s Settings) Pause(ctx context.Context, body api.PauseBody, o WriteOptions) (Response[api.SettingsReply], error) {
	return write[api.SettingsReply](ctx, s.calls, http.MethodPost, route("settings", "pause"), o.query(), body)
}

// Resume ends the pause, ends the hold or confirms a restore, as body.What says. If body.What is empty, Resume ends the
// pause or the hold, whichever is in force. Code: conflict if body.What is empty while a restore is unconfirmed, or
// while both the pause and the hold are in force.
func (s Settings) Resume(ctx context.Context, body api.PauseBody, o WriteOptions) (Response[api.SettingsReply], error) {
	return write[api.SettingsReply](ctx, s.calls, http.MethodPost, route("settings", "resume"), o.query(), body)
}
