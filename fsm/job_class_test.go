package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// A command about a job is stale if the job no longer has the class by which its caller was judged.
func TestCommandsOfAnotherClass(t *testing.T) {
	job := model.JobSpec{Name: "web",
		Groups: []model.GroupSpec{{Name: "g", Count: 2, Exec: model.ExecSpec{Command: "/a"}}}}
	s := run(t, NewState(), 1000, &JobSubmit{Spec: job})
	first, _ := s.JobVersion("web", 1)
	job.Groups[0].Exec.Command = "/b"
	s = run(t, s, 2000, &JobSubmit{Spec: job})
	none := uint64(0)
	commands := func(class model.ClassName) []Command {
		return []Command{&JobScale{Job: "web", Group: "g", Count: 1, IfClass: class}, &JobStop{Job: "web", IfClass: class},
			&JobRestart{Job: "web", IfClass: class}, &JobRevert{Job: "web", Version: 1, IfClass: class, IfTarget: first.Index},
			&JobSubmit{Spec: job, IfClass: class}}
	}
	for class, code := range map[model.ClassName]model.Code{"": "", model.ClassProduction: "", "batch": model.CodeStale} {
		for _, c := range commands(class) {
			if got := s.NewDraft(s.Now).Try(c); got == nil && code != "" || got != nil && got.Code != code {
				t.Errorf("%T for the class %q: %v, want %q", c, class, got, code)
			}
		}
	}
	for _, c := range []Command{&JobRevert{Job: "web", Version: 1, IfTarget: first.Index + 1},
		&JobSubmit{Spec: job, IfIndex: &none}} {
		if got := s.NewDraft(s.Now).Try(c); got == nil || got.Code != model.CodeStale && got.Code != model.CodeConflict {
			t.Errorf("%T: %v", c, got)
		}
	}
}
