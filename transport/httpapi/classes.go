package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (r *reading) class(c *fsm.Class, rank, jobs int) api.ClassView {
	used := r.ClassUsage(c.Name)
	return api.ClassView{
		Name: c.Name, Rank: rank, Default: c.Name == model.ClassProduction, Jobs: jobs, MaxDown: c.MaxDown.Amount,
		MaxDownFloor: c.MaxDown.Floor,
		Quota:        c.Quota, Used: api.ClassUsage{MemoryBytes: used.MemoryBytes, Instances: used.Instances},
		PreemptEqual: c.PreemptEqual,
	}
}

func (r *reading) jobsByClass() map[model.ClassName]int {
	jobs := map[model.ClassName]int{}
	for _, j := range r.Jobs.All() {
		jobs[j.Class]++
	}
	return jobs
}

type classList struct{ ListParams }

// ClassPath is the part of a path that names a class.
type ClassPath struct {
	Name string `path:"name"`
}

type classRead struct {
	ReadParams
	ClassPath
}

type classInput struct {
	WriteParams
	ClassPath
	Input api.ClassBody
}

func (in *classInput) body() any { return &in.Input }

type classRemoval struct {
	WriteParams
	ClassPath
}

func (s *Server) classOperations() []operation {
	return []operation{
		list(s, getRoute("list-classes", "/v1/classes", "classes", "List priority classes, the first one first"),
			listing[classList, api.ClassView]{
				topics: topics[classList]("settings", "jobs"), rows: listClasses,
			}),
		read(s, getRoute("get-class", "/v1/classes/{name}", "classes", "Show a priority class"),
			topics[classRead]("settings", "jobs"), showClass),
		write(s, route{id: "set-class", method: http.MethodPut, path: "/v1/classes/{name}", tag: "classes",
			summary: "Make a class, or change what is given of one"}, setClass()),
		write(s, route{id: "remove-class", method: http.MethodDelete, path: "/v1/classes/{name}", tag: "classes",
			summary: "Remove a class that no job has"}, removeClass()),
	}
}

func listClasses(r *reading, _ *classList, _ string, yield func(string, api.ClassView) bool) error {
	jobs := r.jobsByClass()
	for rank := range r.Classes {
		c := &r.Classes[rank]
		if !yield("c"+strconv.Itoa(10000+rank), r.class(c, rank, jobs[c.Name])) {
			break
		}
	}
	return nil
}

func showClass(_ context.Context, r *reading, in *classRead) (api.ClassView, error) {
	c, rank, ok := r.Class(model.ClassName(in.Name))
	if !ok || !r.Sees("class/"+in.Name) {
		return api.ClassView{}, model.Refuse(model.CodeNotFound, "there is no class %s", clip(in.Name)).
			WithHint("list them with: outspan class ls")
	}
	return r.class(&c, rank, r.jobsByClass()[c.Name]), nil
}

func setClass() change[classInput, api.ClassReply] {
	return change[classInput, api.ClassReply]{
		prepare: func(r *reading, in *classInput) ([]fsm.Command, error) {
			b := &in.Input
			old, _, exists := r.Class(model.ClassName(in.Name))
			c := &fsm.ClassSet{Name: model.ClassName(in.Name), Below: b.Below, Above: b.Above, PreemptEqual: b.PreemptEqual}
			if b.MaxDown != nil || b.MaxDownFloor != nil {
				c.MaxDown = maxDown(b, old, exists)
			}
			if b.QuotaMemory != nil || b.QuotaInstances != nil {
				quota := old.Quota
				if b.QuotaMemory != nil {
					quota.MemoryBytes = *b.QuotaMemory
				}
				if b.QuotaInstances != nil {
					quota.Instances = *b.QuotaInstances
				}
				c.Quota = &quota
			}
			return []fsm.Command{c}, nil
		},
		answer: func(o *outcome, in *classInput) (api.ClassReply, error) {
			reply := api.ClassReply{Written: o.Written}
			if c, rank, ok := o.Class(model.ClassName(in.Name)); ok {
				v := o.class(&c, rank, o.jobsByClass()[c.Name])
				reply.Class = &v
			}
			return reply, nil
		},
	}
}

// maxDown returns a class's limit of instances that may be down, with the changes in b. A percentage of a small number
// may round down to 0, so if b sets a percentage above 0 and no floor, the floor is 1.
func maxDown(b *api.ClassBody, old fsm.Class, exists bool) *model.MaxDown {
	m := old.MaxDown
	if !exists {
		m = model.DefaultMaxDown()
	}
	if b.MaxDown != nil {
		m = model.MaxDown{Amount: *b.MaxDown}
		if b.MaxDown.Percent && b.MaxDown.N > 0 {
			m.Floor = 1
		}
	}
	if b.MaxDownFloor != nil {
		m.Floor = *b.MaxDownFloor
	}
	return &m
}

func removeClass() change[classRemoval, api.ClassReply] {
	return change[classRemoval, api.ClassReply]{
		prepare: func(_ *reading, in *classRemoval) ([]fsm.Command, error) {
			return []fsm.Command{&fsm.ClassRemove{Name: model.ClassName(in.Name)}}, nil
		},
		answer: func(o *outcome, _ *classRemoval) (api.ClassReply, error) {
			return api.ClassReply{Written: o.Written}, nil
		},
	}
}
