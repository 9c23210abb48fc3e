package client

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/outspan/outspan/model"
)

// Consistency says how fresh a read must be.
type Consistency string

// The consistencies. The zero value is Default.
const (
	Default    Consistency = "default"    // the leader's state, with its lease in force
	Consistent Consistency = "consistent" // everything that was acknowledged before the request
	Stale      Consistency = "stale"      // what any one server knows, also without a leader
)

// longestWait is how long a server holds a blocking read at most.
const longestWait = time.Minute

// ReadOptions are those of a read. The zero value reads at once, from the leader.
type ReadOptions struct {
	Consistency Consistency
	// Index is that of an earlier Response: the server answers when the object has changed after it, or after Wait.
	Index uint64
	// Wait is how long the server waits for a change after Index; default and most 1 min.
	Wait time.Duration
}

func (o ReadOptions) query() url.Values {
	q := url.Values{}
	if o.Consistency != "" {
		q.Set("consistency", string(o.Consistency))
	}
	if o.Index > 0 || o.Wait > 0 {
		if o.Wait <= 0 {
			o.Wait = longestWait
		}
		q.Set("index", strconv.FormatUint(o.Index, 10))
		q.Set("wait", o.Wait.String())
	}
	return q
}

// ListOptions are those of a list. The zero value lists everything.
type ListOptions struct {
	ReadOptions
	// Filter has conditions on the fields of an item, all of which must hold: field=value, field!=value or field~text
	// (contains). Inner fields are joined by dots: labels.rack=r1.
	Filter []string
	// Fields leaves out all other fields of the items; empty: none is left out.
	Fields []string
	// PageSize is how many items one answer has at most, 1 to 5000; default 5000. A list is whole all the same.
	PageSize int
}

func (o ListOptions) query() url.Values {
	q := o.ReadOptions.query()
	if len(o.Filter) > 0 {
		q.Set("filter", strings.Join(o.Filter, ","))
	}
	if len(o.Fields) > 0 {
		q.Set("fields", strings.Join(o.Fields, ","))
	}
	if o.PageSize > 0 {
		q.Set("limit", strconv.Itoa(o.PageSize))
	}
	return q
}

// WriteOptions are those of a write.
type WriteOptions struct {
	// RequestID names the write: the same id with the same request is carried out once, and answered with the stored
	// outcome. Default: a new one for each call.
	RequestID model.RequestID
	// DryRun checks the write and answers what it would do. Nothing is changed.
	DryRun bool
}

func (o WriteOptions) query() url.Values {
	q := url.Values{}
	if o.RequestID != "" {
		q.Set("request_id", string(o.RequestID))
	}
	if o.DryRun {
		q.Set("dry_run", "true")
	}
	return q
}

// ChangeOptions are those of a write that may depend on what it changes.
type ChangeOptions struct {
	WriteOptions
	// IfIndex refuses the write, with the code conflict, unless the object is at this index; 0: unless there is none.
	// nil: no condition.
	IfIndex *uint64
}

func (o ChangeOptions) query() url.Values {
	q := o.WriteOptions.query()
	if o.IfIndex != nil {
		q.Set("if_index", strconv.FormatUint(*o.IfIndex, 10))
	}
	return q
}

// set puts a parameter into a query unless it is empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
