package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/adhocore/gronx"
	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (r *reading) settings() api.Settings {
	return api.Settings{Settings: r.Settings, Index: r.SettingsIndex}
}

type settingsRead struct{ ReadParams }

type settingsInput struct {
	WriteParams
	IfIndex string `query:"if_index" pattern:"^[0-9]*$" doc:"refuse unless the settings are at this index"`
	Input   settingsPatch
}

func (in *settingsInput) body() any { return &in.Input }

// settingsPatch is the JSON of the settings to change. It is decoded into the current settings, so a setting that it
// does not contain stays as it is.
type settingsPatch struct{ given []byte }

// UnmarshalJSON implements json.Unmarshaler. It refuses unknown settings and values of wrong types.
func (p *settingsPatch) UnmarshalJSON(data []byte) error {
	p.given = bytes.Clone(data)
	return decodeStrict(data, new(model.Settings))
}

// MarshalJSON implements json.Marshaler, for the hash of the request.
func (p *settingsPatch) MarshalJSON() ([]byte, error) {
	if p.given == nil {
		return []byte("null"), nil
	}
	return p.given, nil
}

// Schema implements huma.SchemaProvider. Every setting is optional.
func (*settingsPatch) Schema(r huma.Registry) *huma.Schema {
	r.Schema(reflect.TypeFor[model.Settings](), false, "")
	whole := *r.Schema(reflect.TypeFor[model.Settings](), false, "")
	whole.Required = nil
	return &whole
}

type pauseInput struct {
	WriteParams
	Input api.PauseBody
}

func (in *pauseInput) body() any { return &in.Input }

func (s *Server) settingsOperations() []operation {
	return []operation{
		read(s, getRoute("get-settings", "/v1/settings", "settings", "Show the settings"), topics[settingsRead]("settings"),
			func(_ context.Context, r *reading, _ *settingsRead) (api.Settings, error) { return r.settings(), nil }),
		write(s, route{id: "set-settings", method: http.MethodPut, path: "/v1/settings", tag: "settings",
			summary: "Change settings; those left out stay"}, setSettings()),
		write(s,
			route{id: "pause-actuation", path: "/v1/settings/pause", tag: "settings",
				summary: "Compute decisions, carry none out"}, pauseActuation(true)),
		write(s,
			route{id: "resume-actuation", path: "/v1/settings/resume", tag: "settings",
				summary: "Carry decisions out again; or end a hold, or confirm a restore"}, pauseActuation(false)),
	}
}

func setSettings() change[settingsInput, api.SettingsReply] {
	return change[settingsInput, api.SettingsReply]{
		answer: settingsReply[settingsInput],
		prepare: func(r *reading, in *settingsInput) ([]fsm.Command, error) {
			c := &fsm.SettingsSet{Settings: r.Settings}
			if in.Input.given == nil {
				return nil, model.Refuse(model.CodeInvalid, "no setting is given").WithHint(`send {"offline_after":"30s"}`)
			}
			if err := decodeStrict(in.Input.given, &c.Settings); err != nil {
				return nil, err
			}
			if w := c.Settings.MoveWindow; w != "" && !gronx.IsValid(w) {
				return nil, model.Refuse(model.CodeInvalid, "rescheduler_window %q is no cron expression", clip(w)).
					WithHint(`write minute, hour, day, month and weekday in UTC, such as "* 1-5 * * *"; empty = always`)
			}
			if in.IfIndex != "" {
				index, err := strconv.ParseUint(in.IfIndex, 10, 64)
				if err != nil {
					return nil, model.Refuse(model.CodeInvalid, "if_index is not a log index")
				}
				if index != r.SettingsIndex { // compared here, because 0 means no condition in the command
					return nil, r.SettingsMoved()
				}
			}
			c.IfIndex = r.SettingsIndex // so that concurrent changes of different settings don't undo each other
			return []fsm.Command{c}, nil
		},
	}
}

func settingsReply[I any](o *outcome, _ *I) (api.SettingsReply, error) {
	return api.SettingsReply{Written: o.Written, Settings: o.settings()}, nil
}

func pauseActuation(paused bool) change[pauseInput, api.SettingsReply] {
	return change[pauseInput, api.SettingsReply]{
		answer: settingsReply[pauseInput],
		prepare: func(r *reading, in *pauseInput) ([]fsm.Command, error) {
			what, refusal := whatToResume(r, paused, in.Input.What)
			if refusal != nil {
				return nil, refusal
			}
			switch {
			case what == "pause":
				next := r.Settings
				next.Paused = paused
				return []fsm.Command{&fsm.SettingsSet{Settings: next, IfIndex: r.SettingsIndex}}, nil
			case what == "hold" && !paused:
				return []fsm.Command{&fsm.HoldSet{Active: false, Reason: "ended by an operator"}}, nil
			case what == "restore" && !paused:
				return []fsm.Command{&fsm.RestoreMark{Confirm: true}}, nil
			}
			return nil, model.Refuse(model.CodeInvalid, "what is none of the things that can be paused or resumed").
				WithHint("pause: actuation; resume: pause, hold or restore")
		},
	}
}

// whatToResume returns what a request pauses or resumes: pause, hold or restore. If named is empty, a request to pause
// means pause. A request to resume means the only one of the three that is in force, or pause if none is. The request
// is refused if several are in force, or if only a restore is, because the confirmation of a restore stops instances.
// Code: conflict.
func whatToResume(r *reading, paused bool, named string) (string, *model.Error) {
	var inForce []string
	for _, one := range []struct {
		name string
		on   bool
	}{{"pause", r.Settings.Paused}, {"hold", r.Hold.Active}, {"restore", r.Unconfirmed}} {
		if one.on {
			inForce = append(inForce, one.name)
		}
	}
	switch {
	case named == "actuation":
		return "pause", nil
	case named != "":
		return named, nil
	case paused || len(inForce) == 0:
		return "pause", nil
	case len(inForce) == 1 && inForce[0] != "restore":
		return inForce[0], nil
	}
	return "", model.Refuse(model.CodeConflict, "say what to resume; in force: %s", strings.Join(inForce, ", ")).
		WithHint("write: outspan settings resume %s; what a restore would stop: outspan settings resume restore --dry-run",
			inForce[0])
}
