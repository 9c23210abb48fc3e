package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/outspan/outspan/api"
)

// Jobs are the operations on jobs, which say what the cluster should run. A job is named by its name or, in reads, a
// unique prefix.
type Jobs struct{ calls }

// List returns the jobs. It reads all pages.
func (j Jobs) List(ctx context.Context, o ListOptions) (List[api.Job], error) {
	return list[api.Job](ctx, j.calls, route("jobs"), o.query())
}

// All yields the jobs and reads each page when it is needed. If a read fails, All yields the error and stops.
func (j Jobs) All(ctx context.Context, o ListOptions) iter.Seq2[api.Job, error] {
	return each[api.Job](ctx, j.calls, route("jobs"), o.query())
}

// Get returns one job with its spec. Codes: not_found, ambiguous.
func (j Jobs) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.JobDetail], error) {
	return read[api.JobDetail](ctx, j.calls, route("jobs", ref), o.query())
}

// Versions returns the versions of a job that the servers still keep. It reads all pages.
func (j Jobs) Versions(ctx context.Context, ref string, o ListOptions) (List[api.JobVersion], error) {
	return list[api.JobVersion](ctx, j.calls, route("jobs", ref, "versions"), o.query())
}

// Version returns one version of a job. Code: not_found.
func (j Jobs) Version(
	ctx context.Context, ref string, version uint64, o ReadOptions,
) (Response[api.JobVersion], error) {
	return read[api.JobVersion](ctx, j.calls, route("jobs", ref, "versions", strconv.FormatUint(version, 10)), o.query())
}

// File returns one version of a job as a job file. The file states what the version states, and has no comments. Code:
// not_found.
func (j Jobs) File(ctx context.Context, ref string, version uint64, o ReadOptions) (Response[api.JobFile], error) {
	at := route("jobs", ref, "versions", strconv.FormatUint(version, 10), "file")
	return read[api.JobFile](ctx, j.calls, at, o.query())
}

// Parse reads a job file. The result has no defaults; Validate adds them. Code: invalid, with each mistake and its
// line.
func (j Jobs) Parse(ctx context.Context, text string, o PlanOptions) (Response[api.JobFileSpec], error) {
	body := api.JobFileBody{Text: text}
	return write[api.JobFileSpec](ctx, j.calls, http.MethodPost, route("jobs", "parse"), o.query(), body)
}

// Submit makes a spec the current version of its job, and creates the job if there is none. A spec that equals the
// current version of a running job changes nothing.
func (j Jobs) Submit(ctx context.Context, body api.SubmitBody, o ChangeOptions) (Response[api.JobReply], error) {
	return write[api.JobReply](ctx, j.calls, http.MethodPost, route("jobs"), o.query(), body)
}

// PlanOptions are the options of Jobs.Validate and Jobs.Plan, which change nothing.
type PlanOptions struct {
	Consistency Consistency
}

func (o PlanOptions) query() url.Values { return ReadOptions{Consistency: o.Consistency}.query() }

// Validate checks a spec and fills in every default. Code: invalid.
func (j Jobs) Validate(ctx context.Context, body api.SubmitBody, o PlanOptions) (Response[api.JobValidation], error) {
	return write[api.JobValidation](ctx, j.calls, http.MethodPost, route("jobs", "validate"), o.query(), body)
}

// Plan returns what submitting a spec would do.
func (j Jobs) Plan(ctx context.Context, body api.SubmitBody, o PlanOptions) (Response[api.JobPlan], error) {
	return write[api.JobPlan](ctx, j.calls, http.MethodPost, route("jobs", string(body.Job.Name), "plan"), o.query(), body)
}

// Scale changes the count of a group. body.Group may be empty if the job has only one group.
func (j Jobs) Scale(
	ctx context.Context, ref string, body api.ScaleBody, o WriteOptions,
) (Response[api.JobReply], error) {
	return write[api.JobReply](ctx, j.calls, http.MethodPost, route("jobs", ref, "scale"), o.query(), body)
}

// Stop stops every instance of a job. If body.Purge is set, the job is removed once its last instance has stopped.
func (j Jobs) Stop(ctx context.Context, ref string, body api.StopBody, o WriteOptions) (Response[api.JobReply], error) {
	return write[api.JobReply](ctx, j.calls, http.MethodPost, route("jobs", ref, "stop"), o.query(), body)
}

// Restart makes a new version with the same spec. The rollout of that version replaces every instance of the job or, if
// body.Group is set, every instance of that group.
func (j Jobs) Restart(
	ctx context.Context, ref string, body api.RestartBody, o WriteOptions,
) (Response[api.JobReply], error) {
	return write[api.JobReply](ctx, j.calls, http.MethodPost, route("jobs", ref, "restart"), o.query(), body)
}

// Revert submits the spec of an earlier version again, as a new version.
func (j Jobs) Revert(
	ctx context.Context, ref string, body api.RevertBody, o WriteOptions,
) (Response[api.RevertReply], error) {
	return write[api.RevertReply](ctx, j.calls, http.MethodPost, route("jobs", ref, "revert"), o.query(), body)
}

// JobLogOptions are the options of Jobs.Logs.
type JobLogOptions struct {
	LogOptions
	Group   string // only output of this group; "" means all
	Running bool   // omit terminal instances; Follow omits them in any case
}

// Logs opens the output of all instances of a job. Each line begins with a prefix that names the instance. The lines
// are in the order in which they were written. At most 100 instances are read at a time: the lines of others come after
// them, with o.Follow once one of the first has ended. The caller closes the stream. With o.Follow, reading blocks
// until there is more output.
func (j Jobs) Logs(ctx context.Context, ref string, o JobLogOptions) (io.ReadCloser, error) {
	query := o.query()
	if o.Group != "" {
		query.Set("group", o.Group)
	}
	if o.Running {
		query.Set("running", "true")
	}
	return open(ctx, j.calls, route("jobs", ref, "logs"), query, "")
}

// JobStatsOptions are the options of Jobs.Stats.
type JobStatsOptions struct {
	Group string // only the instances of this group; "" means all
}

// Stats returns what each instance of a job uses now. It takes a second or more, at most about 10. Any server
// answers, by asking the agents. An instance whose use is not known has the reason, and does not make the call fail.
// Codes: not_found, ambiguous, busy.
func (j Jobs) Stats(ctx context.Context, ref string, o JobStatsOptions) (Response[api.JobStats], error) {
	query := url.Values{}
	set(query, "group", o.Group)
	return read[api.JobStats](ctx, j.calls, route("jobs", ref, "stats"), query)
}
