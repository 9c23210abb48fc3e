package httpapi

import (
	"context"
	"encoding/base64"
	"net/http"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// maxItems is the maximum number of items in one answer. With the parameter next, a caller gets the items after them.
const maxItems = 5000

// ListParams are the parameters of every list.
type ListParams struct {
	ReadParams
	Filter string `query:"filter" maxLength:"1024" doc:"conditions on the fields of an item, joined by commas, all of which must hold: field=value, field!=value, field~text (contains); inner fields by dots: labels.rack=r1" example:"state=active,labels.rack=r1"`
	Fields string `query:"fields" maxLength:"1024" doc:"only these fields of each item, joined by commas; all if it is left out" example:"id,name,state"`
	Limit  int    `query:"limit" minimum:"1" maximum:"5000" doc:"the most items to return; default 5000"`
	Next   string `query:"next" maxLength:"512" doc:"the next of an earlier answer: go on behind it"`
}

func (p *ListParams) list() *ListParams { return p }

// listInput is implemented by every input that embeds ListParams.
type listInput[I any] interface {
	readInput[I]
	list() *ListParams
}

// List is the answer of every list.
type List[V any] struct {
	Items  []V    `json:"items"`
	Index  uint64 `json:"index"`
	Next   string `json:"next,omitempty" doc:"present when there is more: give it as next"`
	Hidden int    `json:"hidden,omitempty" doc:"items that the caller may not read, up to the end of this page; only in the first page of a list of everything"`

	only *selection
}

// listing has the functions of one list. rows yields the items in order of their keys. It may leave out keys before
// from.
type listing[I, V any] struct {
	topics func(*reading, *I) []fsm.Topic
	rows   func(r *reading, in *I, from string, yield func(key string, item V) bool) error
}

// list returns the operation of a list. A page ends at a key, and the next page begins after that key. So an item that
// exists during all requests, with the same key, is returned exactly once.
func list[I any, P listInput[I], V any](s *Server, rt route, l listing[I, V]) operation {
	return read[I, P](s, rt, l.topics, func(ctx context.Context, r *reading, in *I) (List[V], error) {
		p := P(in).list()
		keep, err := parseFilter[V](p.Filter)
		if err != nil {
			return List[V]{}, err
		}
		only, err := parseSelection[V](p.Fields)
		if err != nil {
			return List[V]{}, err
		}
		after, err := parseNext(p.Next)
		if err != nil {
			return List[V]{}, err
		}
		limit := maxItems
		if p.Limit > 0 {
			limit = min(p.Limit, maxItems)
		}
		out, last := List[V]{Items: []V{}, Index: r.Index, only: only}, ""
		hides := s.judge.hides(ctx, r, rt)
		counts := p.Filter == "" && p.Next == "" // otherwise the count would reveal what is hidden
		if one, ok := any(in).(interface{ narrowed() bool }); ok && one.narrowed() {
			counts = false
		}
		err = l.rows(r, in, after, func(key string, item V) bool {
			switch {
			case p.Next != "" && key <= after:
				return true
			case len(out.Items) == limit && (hides(item) || keep.match(item)):
				out.Next = base64.RawURLEncoding.EncodeToString([]byte(last))
				return false
			case hides(item): // before the filter, which could reveal what is hidden
				if counts {
					out.Hidden++
				}
				return true
			case !keep.match(item):
				return true
			}
			out.Items, last = append(out.Items, item), key
			return true
		})
		return out, err
	})
}

func parseNext(next string) (string, error) {
	key, err := base64.RawURLEncoding.DecodeString(next)
	if err != nil {
		return "", model.Refuse(model.CodeInvalid, "next is not from an earlier answer").
			WithHint("leave it out to begin anew")
	}
	return string(key), nil
}

// topics returns a function that returns the same topics for every input.
func topics[I any](t ...fsm.Topic) func(*reading, *I) []fsm.Topic {
	return func(*reading, *I) []fsm.Topic { return t }
}

// scan yields the rows of a table in order of their keys, beginning at the key from. show converts each row to an item.
func scan[K ~string, R, V any](t fsm.Table[K, R], from string, show func(R) V, yield func(string, V) bool) {
	for key, row := range t.From(K(from)) {
		if !yield(string(key), show(row)) {
			return
		}
	}
}

// notNil replaces nil by an empty list, which is encoded as [] and not as null.
func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func notNilMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}

// getRoute returns the route of a read.
func getRoute(id, path, tag, summary string) route {
	return route{id: id, method: http.MethodGet, path: path, tag: tag, summary: summary}
}
