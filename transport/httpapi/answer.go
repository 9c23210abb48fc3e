package httpapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

const contentTypeJSON = "application/json"

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = encodeJSON(w, v) // the status is already sent, so an error, such as a lost connection, can't be reported
}

func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func writeError(w http.ResponseWriter, err error) { writeProblem(w, api.NewProblem(err)) }

func writeProblem(w http.ResponseWriter, p *api.Problem) {
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if p.Index > 0 {
		w.Header().Set(api.HeaderIndex, decimal(p.Index))
	}
	writeJSON(w, p.Status, api.ContentTypeProblem, p)
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// answered wraps a problem so that huma sends it unchanged.
type answered struct{ *api.Problem }

// GetStatus implements huma.StatusError.
func (a answered) GetStatus() int { return a.Status }

// ContentType implements huma.ContentTypeFilter.
func (a answered) ContentType(string) string { return api.ContentTypeProblem }

// MarshalJSON encodes the problem without the wrapper.
func (a answered) MarshalJSON() ([]byte, error) { return json.Marshal(a.Problem) }

func asAnswer(err error) error {
	if err == nil {
		return nil
	}
	return answered{api.NewProblem(err)}
}

// formats returns the formats of JSON operations. Request bodies are decoded by decodeBody instead.
func formats() map[string]huma.Format {
	format := huma.Format{
		Marshal: func(w io.Writer, v any) error {
			if m, ok := v.(*huma.ErrorModel); ok {
				v = reshape(m)
			}
			if l, ok := v.(selected); ok {
				v = l.selected()
			}
			return encodeJSON(w, v)
		},
		Unmarshal: decodeStrict,
	}
	return map[string]huma.Format{contentTypeJSON: format, "json": format}
}

// reshape turns huma's own errors about parameters into problems. It omits the values that the caller sent.
func reshape(m *huma.ErrorModel) *api.Problem {
	if m.Status >= http.StatusInternalServerError {
		return api.NewProblem(errors.New(m.Detail))
	}
	var parts []string
	for _, d := range m.Errors {
		parts = append(parts, strings.TrimPrefix(d.Location, "query.")+": "+d.Message)
	}
	if len(parts) == 0 {
		parts = append(parts, m.Detail)
	}
	return api.NewProblem(model.Refuse(model.CodeInvalid, "%s", strings.Join(parts, "; ")).
		WithHint("the parameters are listed in /openapi.json"))
}

// statusFromCode makes huma answer an invalid request with the status that the table of codes has for "invalid".
func statusFromCode(ctx huma.Context, next func(huma.Context)) { next(statusContext{ctx}) }

type (
	humaContext   huma.Context // so that the embedded field does not hide the method Context
	statusContext struct{ humaContext }
)

// SetStatus implements huma.Context.
func (c statusContext) SetStatus(status int) {
	if status == http.StatusUnprocessableEntity {
		status = api.StatusOf(model.CodeInvalid)
	}
	c.humaContext.SetStatus(status)
}

// Unwrap lets humago find its own context.
func (c statusContext) Unwrap() huma.Context { return c.humaContext }

// refusedAt adds a log index to a refusal: the index of the refused entry, or of the state on which the refusal is
// based.
func refusedAt(refusal *model.Error, index uint64) error {
	return api.NewProblem(refusal).At(index)
}
