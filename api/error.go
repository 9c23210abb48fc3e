package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/outspan/outspan/model"
)

// ContentTypeProblem is the media type of every error answer (RFC 9457).
const ContentTypeProblem = "application/problem+json"

// Problem is an error in an answer. It has the members of RFC 9457 and some of our own.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"` // the same as Message, under the name of RFC 9457

	Code      model.Code `json:"code"`
	Message   string     `json:"message"`
	Hint      string     `json:"hint,omitempty"`
	Retryable bool       `json:"retryable"`
	Index     uint64     `json:"index,omitempty"`  // of the refused entry, or of the state on which the refusal is based
	Oldest    string     `json:"oldest,omitempty"` // id of the oldest event that is kept (event_collected)
	Newest    string     `json:"newest,omitempty"` // id of the newest event (event_collected)
	// NextAllowed is when the rate of a budget or an actor allows the next stop (budget_rate, actor_rate).
	NextAllowed *time.Time `json:"next_allowed,omitempty"`
}

// NewProblem returns err as a Problem. A *Problem is returned as it is. If err contains no *model.Error, the Problem
// has the code internal, and refers to the server's log instead of showing err's text.
func NewProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var known *model.Error
	if !errors.As(err, &known) {
		known = model.Refuse(model.CodeInternal, "the server failed").WithHint("its log says why")
	}
	status := StatusOf(known.Code)
	return &Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: known.Message,
		Code: known.Code, Message: known.Message, Hint: known.Hint, Retryable: Retryable(known.Code),
	}
}

// At returns a copy of p with the given log index.
func (p *Problem) At(index uint64) *Problem {
	c := *p
	c.Index = index
	return &c
}

// Error implements error.
func (p *Problem) Error() string { return p.refusal().Error() }

// Unwrap returns the *model.Error inside, for errors.As and errors.Is.
func (p *Problem) Unwrap() error { return p.refusal() }

func (p *Problem) refusal() *model.Error {
	return &model.Error{Code: p.Code, Message: p.Message, Hint: p.Hint}
}

// ProblemOf reads the error in an answer of a server or an agent. It returns a *Problem, or a *model.Error with the
// code internal if the answer can't be read. It does not close the body.
func ProblemOf(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var p Problem
	if err != nil || json.Unmarshal(text, &p) != nil || p.Code == "" {
		return model.Refuse(model.CodeInternal, "the server answered %s, and no reason", resp.Status).
			WithHint("check that the address is an outspan server's")
	}
	p.Status = resp.StatusCode
	return &p
}

// ExitClass is an exit code of the command line for errors.
type ExitClass int

// The exit codes for errors.
const (
	ExitOther     ExitClass = 1
	ExitUsage     ExitClass = 2 // wrong arguments, or an invalid file or request
	ExitForbidden ExitClass = 3
	ExitNotFound  ExitClass = 4
	ExitConflict  ExitClass = 5
	ExitTransient ExitClass = 6
	ExitInternal  ExitClass = 7
)

type codeInfo struct {
	status int
	exit   ExitClass
}

// codeTable maps codes to HTTP statuses and exit codes. All other codes mean that the state does not allow the request.
// They get status 409 and exit code 5.
var codeTable = map[model.Code]codeInfo{
	model.CodeInvalid:            {http.StatusBadRequest, ExitUsage},
	model.CodeNotSupported:       {http.StatusBadRequest, ExitUsage},
	model.CodeUnknownClass:       {http.StatusBadRequest, ExitUsage},
	model.CodeUnknownBudget:      {http.StatusBadRequest, ExitUsage},
	model.CodeAmbiguous:          {http.StatusBadRequest, ExitNotFound}, // the name or id fits several objects
	model.CodeTooLarge:           {http.StatusRequestEntityTooLarge, ExitUsage},
	model.CodeMediaType:          {http.StatusUnsupportedMediaType, ExitUsage},
	model.CodeNoRoute:            {http.StatusNotFound, ExitUsage},
	model.CodeFileExists:         {http.StatusConflict, ExitConflict},
	model.CodeFile:               {http.StatusInternalServerError, ExitOther},
	model.CodeGossipKeyInvalid:   {http.StatusInternalServerError, ExitUsage},
	model.CodeKeyringInvalid:     {http.StatusInternalServerError, ExitUsage},
	model.CodeCertificateInvalid: {http.StatusInternalServerError, ExitUsage},

	model.CodeForbidden:          {http.StatusForbidden, ExitForbidden},
	model.CodeUnauthenticated:    {http.StatusUnauthorized, ExitForbidden},
	model.CodeCertificateRefused: {http.StatusForbidden, ExitForbidden},
	model.CodeNotFound:           {http.StatusNotFound, ExitNotFound},
	model.CodeEventCollected:     {http.StatusGone, ExitNotFound},

	model.CodeBusy:             {http.StatusServiceUnavailable, ExitTransient},
	model.CodeNoLeader:         {http.StatusServiceUnavailable, ExitTransient},
	model.CodeStaleTerm:        {http.StatusServiceUnavailable, ExitTransient},
	model.CodeUnknownOutcome:   {http.StatusServiceUnavailable, ExitTransient},
	model.CodeNotCaughtUp:      {http.StatusServiceUnavailable, ExitTransient},
	model.CodeUnreachable:      {http.StatusServiceUnavailable, ExitTransient},
	model.CodeAuditUnavailable: {http.StatusServiceUnavailable, ExitTransient},
	model.CodeShutdownTimeout:  {http.StatusServiceUnavailable, ExitTransient},
	model.CodeAgentUnreachable: {http.StatusBadGateway, ExitTransient},

	model.CodeProviderUnreachable: {http.StatusBadGateway, ExitTransient},
	model.CodeRegistrySilent:      {http.StatusBadGateway, ExitTransient},
	model.CodeTimeout:             {http.StatusGatewayTimeout, ExitTransient},
	model.CodeRateLimited:         {http.StatusTooManyRequests, ExitTransient},
	model.CodeDiskFull:            {http.StatusInsufficientStorage, ExitTransient},
	// The state does not allow these requests either, but a later try may succeed without anybody's help.
	model.CodeBudgetMinReady: {http.StatusConflict, ExitTransient},
	model.CodeBudgetRate:     {http.StatusConflict, ExitTransient},
	model.CodeActorRate:      {http.StatusConflict, ExitTransient},
	model.CodePaused:         {http.StatusConflict, ExitTransient},
	model.CodeHold:           {http.StatusConflict, ExitTransient},
	model.CodeStopping:       {http.StatusConflict, ExitTransient},
	model.CodeLeaseHeld:      {http.StatusConflict, ExitTransient},

	model.CodeInternal:     {http.StatusInternalServerError, ExitInternal},
	model.CodeNeedsFormat:  {http.StatusInternalServerError, ExitInternal},
	model.CodeStateDiffers: {http.StatusInternalServerError, ExitInternal},
	model.CodeNotTLS:       {http.StatusBadGateway, ExitOther},
	model.CodeIssueFailed:  {http.StatusBadGateway, ExitOther},
	model.CodeAddressInUse: {http.StatusConflict, ExitOther},
	model.CodeListen:       {http.StatusInternalServerError, ExitOther},
}

func infoOf(code model.Code) codeInfo {
	if info, ok := codeTable[code]; ok {
		return info
	}
	return codeInfo{http.StatusConflict, ExitConflict}
}

// StatusOf returns the HTTP status of an answer with this code.
func StatusOf(code model.Code) int { return infoOf(code).status }

// ExitOf returns the exit code of the command line for this code.
func ExitOf(code model.Code) ExitClass { return infoOf(code).exit }

// Retryable reports whether the same request may succeed later. A write whose outcome is unknown must be repeated with
// the same request id.
func Retryable(code model.Code) bool { return ExitOf(code) == ExitTransient }

// ExitOfError returns the exit code of the command line for any error. It returns 1 if the error has no code.
func ExitOfError(err error) ExitClass {
	var known *model.Error
	if errors.As(err, &known) {
		return ExitOf(known.Code)
	}
	return ExitOther
}
