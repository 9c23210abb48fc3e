package client

import (
	"context"
	"errors"
	"iter"
	"net/url"

	"github.com/outspan/outspan/api/frame"
	"github.com/outspan/outspan/model"
)

// Page is the stream that the web page shows.
type Page struct{ calls }

// PageOptions select what the stream shows. The zero value selects everything.
type PageOptions struct {
	// Job selects only the instances of this job, with their nodes and groups.
	Job model.JobName
	// Node selects only this node, by name or id, with its instances and their groups.
	Node string
	// Bare leaves out all rows. Only the banner and the counts are left.
	Bare bool
	// Broken is called in the caller's goroutine when the stream breaks, with the reason. The picture is then that of the
	// last frame, until a new snapshot has arrived whole.
	Broken func(why error)
}

func (o PageOptions) query() url.Values {
	q := url.Values{}
	if o.Job != "" {
		q.Set("job", string(o.Job))
	}
	if o.Node != "" {
		q.Set("node", o.Node)
	}
	if o.Bare {
		q.Set("rows", "false")
	}
	return q
}

// Follow yields the picture of the nodes, groups and instances whenever it has changed, and about once a second if
// nothing changes. The picture is the same each time and changes with the next one, so the caller copies what it keeps.
// Picture.Whole, Age and Alone say how good it is. If the connection breaks, Follow reconnects, perhaps to another
// server. It yields the old picture, with Whole false and a negative Age, until the new snapshot is whole. Follow stops
// when ctx ends, with the cause of ctx as its last error, or after an error that is not transient.
func (p Page) Follow(ctx context.Context, o PageOptions) iter.Seq2[*frame.Picture, error] {
	return func(yield func(*frame.Picture, error) bool) {
		var reader frame.Reader
		for pause := firstPause; ; pause = min(2*pause, mostPause) {
			err := p.stream(ctx, o.query(), &reader, func(picture *frame.Picture) bool {
				pause = firstPause
				return yield(picture, nil)
			})
			switch {
			case errors.Is(err, errEnough):
				return
			case ctx.Err() == nil && err != nil && !Transient(err) && !broken(err):
				yield(nil, err)
				return
			case ctx.Err() == nil && o.Broken != nil:
				o.Broken(err)
			}
			if ctx.Err() != nil || !sleep(ctx, pause) {
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

// stream makes one call and gives each picture to yield. It returns errEnough if yield returned false, and otherwise
// the error of the call or of the stream, which is io.EOF if the server ended it.
func (p Page) stream(ctx context.Context, query url.Values, reader *frame.Reader,
	yield func(*frame.Picture) bool) error {
	body, err := open(ctx, p.calls, route("page", "stream"), query, "")
	if err != nil {
		return err
	}
	defer body.Close()
	var buf []byte
	for {
		if buf, err = frame.Read(body, buf); err != nil {
			return err
		}
		picture, err := reader.Apply(buf)
		if err != nil {
			return model.Refuse(model.CodeInternal, "the page's stream is not what this version of outspan expects: %v", err)
		}
		if picture != nil && !yield(picture) {
			return errEnough
		}
	}
}
