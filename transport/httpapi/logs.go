package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
)

const contentTypeLog = "application/octet-stream"

// headerLogOffset is the header with the stream offset of the answer's first byte. Agents send it only if one stream
// was requested.
const headerLogOffset = "Outspan-Log-Offset"

// headerLogTimes is a header of an agent's answer. It means that each line begins with its time and a blank. noLogTime
// stands for an unknown time.
const (
	headerLogTimes = "Outspan-Log-Times"
	noLogTime      = "-"
)

func (s *Server) logOperations() []operation {
	one := getRoute("instance-logs", "/v1/instances/{id}/logs", "instances", "Read or follow the output of an instance")
	job := getRoute("job-logs", "/v1/jobs/{name}/logs", "jobs",
		"Read or follow the output of every instance of a job, line by line with a prefix; follows new instances too")
	one.allow, one.stream, job.allow, job.stream = forCLI, true, forCLI, true
	shared := params(
		queryParam("stream", "stdout, stderr or both; default both"),
		queryParam("follow", "true: go on as more comes"),
		queryParam("tail", "begin with this many of the last lines"),
		queryParam("timestamps", "true: put the time at which it was written and a blank before each line"),
		queryParam("since", "leave out older lines: a time (RFC 3339), or a duration such as 10m"),
	)
	return []operation{
		plain(one,
			document{answer: contentTypeLog,
				params: append(shared,
					queryParam("offset", "with one stream: begin at this byte; negative: counted from the end"))},
			http.HandlerFunc(s.instanceLogs)),
		plain(job,
			document{answer: "text/plain",
				params: append(shared, queryParam("group", "of this group only"),
					queryParam("running", "true: leave out instances that have ended"))}, http.HandlerFunc(s.jobLogs)),
	}
}

// checkLogQuery refuses unknown parameters and invalid values before the server connects to an agent. It allows the
// shared parameters, and the parameters that the argument also lists. The agent checks the value of offset. Code:
// invalid.
func checkLogQuery(r *http.Request, also ...string) error {
	if err := checkQuery(r, append([]string{"stream", "follow", "tail", "timestamps", "since"}, also...)...); err != nil {
		return err
	}
	q := r.URL.Query()
	switch q.Get("stream") {
	case "", "stdout", "stderr", "both":
	default:
		return model.Refuse(model.CodeInvalid, "stream is none of stdout, stderr and both")
	}
	for _, name := range [...]string{"follow", "timestamps", "running"} {
		if v := q.Get(name); v != "" {
			if _, err := strconv.ParseBool(v); err != nil {
				return model.Refuse(model.CodeInvalid, "%s is neither true nor false", name)
			}
		}
	}
	if v := q.Get("since"); v != "" && !isSince(v) {
		return model.Refuse(model.CodeInvalid, "since is neither a time nor a duration").
			WithHint("write 10m, or 2026-01-31T12:00:00Z")
	}
	if v := q.Get("tail"); v != "" {
		if n, err := strconv.Atoi(v); err != nil || n < 0 {
			return model.Refuse(model.CodeInvalid, "tail is not a number of lines")
		}
	}
	return nil
}

// isSince reports whether agents accept text as the value of since.
func isSince(text string) bool {
	if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return true
	}
	d, err := model.ParseDuration(text)
	return err == nil && d >= 0 && d != model.Forever
}

// instanceLogs passes on the log that the agent of the instance's node sends. Any server can do this, not only the
// leader.
func (s *Server) instanceLogs(w http.ResponseWriter, r *http.Request) {
	life, release, err := s.streams.take(r.Context(), callerFrom(r.Context()).Subject)
	if err != nil {
		writeError(w, err)
		return
	}
	defer release()
	if err := checkLogQuery(r, "offset"); err != nil {
		writeError(w, err)
		return
	}
	ctx, cancel := streamContext(life, streamLife)
	defer cancel()
	state, _ := s.cfg.Store.Watch()
	sees := s.judge.sight(&state, callerFrom(ctx), verbs["instance-logs"])
	i, refusal := state.Finder(sees).FindInstance(r.PathValue("id"))
	if refusal != nil {
		writeError(w, refusal)
		return
	}
	job, _ := i.Group.Split()
	ctx, cancel, err = s.judge.whileReadable(ctx, "instance-logs", job, func(state *fsm.State) rights.Object {
		return instanceObject(state, i) // i is still right if its row is gone by now
	})
	if err != nil {
		writeError(w, err)
		return
	}
	defer cancel()
	resp, err := s.agentLog(ctx, &state, i, r.URL.Query())
	if err != nil {
		writeError(w, err)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", contentTypeLog)
	if offset := resp.Header.Get(headerLogOffset); offset != "" {
		w.Header().Set(headerLogOffset, offset)
	}
	if times := resp.Header.Get(headerLogTimes); times != "" {
		w.Header().Set(headerLogTimes, times)
	}
	w.WriteHeader(http.StatusOK)
	if err := copyBounded(w, resp.Body); err != nil {
		s.log.Debug("log stream ended", "instance", i.ID, "error", err)
		panic(http.ErrAbortHandler) // so that the reader does not mistake this for the end of the log
	}
}

// streamContext returns a context that is canceled after the time life, when the caller has gone, or when the server
// begins to stop.
func streamContext(ctx context.Context, life time.Duration) (context.Context, context.CancelFunc) {
	stopping := transport.Stopping(ctx)
	ctx, cancel := context.WithTimeout(ctx, life)
	if stopping != nil {
		go func() {
			select {
			case <-stopping:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

// agentLog requests the log of an instance from its node's agent. The caller must close the response's body. Codes:
// not_found, agent_unreachable, and those of the agent.
func (s *Server) agentLog(ctx context.Context, state *fsm.State, i *fsm.Instance,
	query url.Values) (*http.Response, error) {
	n, ok := state.Nodes.Get(i.Node)
	if !ok {
		return nil, model.Refuse(model.CodeNotFound, "node %s of instance %s is gone, and its logs with it", i.Node, i.ID)
	}
	if n.Agent.APIAddress == "" || s.cfg.AgentTransport == nil {
		return nil, model.Refuse(model.CodeAgentUnreachable, "the agent of node %s serves no logs", n.Name)
	}
	q := url.Values{}
	for _, name := range [...]string{"stream", "follow", "tail", "offset", "timestamps", "since"} {
		if v := query.Get(name); v != "" {
			q.Set(name, v)
		}
	}
	target := url.URL{Scheme: "https", Host: n.Agent.APIAddress, Path: "/v1/agent/logs/" + string(i.ID),
		RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(reach.ExpectPeer(ctx, n.Name), http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, model.Refuse(model.CodeAgentUnreachable, "the address of node %s is not usable", n.Name)
	}
	resp, err := s.cfg.AgentTransport.RoundTrip(req)
	if err != nil {
		s.log.Warn("can't reach an agent", "node", n.Name, "address", n.Agent.APIAddress, "error", err)
		return nil,
			model.Refuse(model.CodeAgentUnreachable, "the agent of node %s at %s does not answer", n.Name, n.Agent.APIAddress).
				WithHint("see: outspan node status %s", n.Name)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, api.ProblemOf(resp)
	}
	return resp, nil
}

// copyBounded passes bytes on as they arrive. It fails if a write takes longer than writeBound.
func copyBounded(w http.ResponseWriter, from io.Reader) error {
	return copyFlushed(&boundedWriter{ResponseWriter: w, flush: http.NewResponseController(w)}, from, -1)
}

// boundedWriter gives each write a deadline of writeBound.
type boundedWriter struct {
	http.ResponseWriter
	flush *http.ResponseController
}

// Write implements io.Writer.
func (b *boundedWriter) Write(p []byte) (int, error) {
	if err := b.flush.SetWriteDeadline(deadline(writeBound)); err != nil {
		return 0, fmt.Errorf("bound the write of a stream: %w", err)
	}
	return b.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find the real writer.
func (b *boundedWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }
