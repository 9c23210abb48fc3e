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

// The values of Consistency. The zero value is Default.
const (
	Default    Consistency = "default"    // the leader's state, while its lease holds
	Consistent Consistency = "consistent" // includes everything acknowledged before the request
	Stale      Consistency = "stale"      // what any server knows, even without a leader
)

// longestWait is the maximum and the default of ReadOptions.Wait.
const longestWait = time.Minute

// ReadOptions are the options of a read. The zero value reads at once, from the leader.
type ReadOptions struct {
	Consistency Consistency
	// Index is the index of an earlier Response. It makes the read blocking: the server answers once the object or list
	// has changed after that index, or after Wait. If Index is 0, the server answers at once.
	Index uint64
	// Wait is how long the server waits for a change after Index. Default 1 min, which is also the maximum.
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

// ListOptions are the options of a list. The zero value lists everything.
type ListOptions struct {
	ReadOptions
	// Filter has conditions on the fields of an item: field=value, field!=value, or field~text (the field contains text).
	// The list contains only items that meet all conditions. Dots lead to nested fields: labels.rack=r1.
	Filter []string
	// Fields names the fields that the items include. Empty means all fields.
	Fields []string
	// PageSize is the maximum number of items in one answer, 1 to 5000; default 5000. It does not shorten the list,
	// because all pages are read.
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

// WriteOptions are the options of a write.
type WriteOptions struct {
	// RequestID identifies the write. Requests with the same id are carried out only once; a repetition gets the stored
	// answer. The default is a new id for each call.
	RequestID model.RequestID
	// DryRun makes the servers check the write and answer what it would do. They change nothing.
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

// ChangeOptions are the options of a write that can be made conditional on the current index of its object.
type ChangeOptions struct {
	WriteOptions
	// IfIndex makes the write conditional: the servers refuse it with the code conflict unless the object has this index.
	// nil means no condition. 0 means that a job must not exist yet; the index of the settings is never 0.
	IfIndex *uint64
}

func (o ChangeOptions) query() url.Values {
	q := o.WriteOptions.query()
	if o.IfIndex != nil {
		q.Set("if_index", strconv.FormatUint(*o.IfIndex, 10))
	}
	return q
}

// set adds a parameter to a query unless its value is empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
