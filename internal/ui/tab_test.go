package ui

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// shoot takes screenshots in the directory OUTSPAN_PAGE_SHOTS, and checks that the page is not wider than the window.
func (v *tab) shoot(name string) {
	v.t.Helper()
	dir, ctx := os.Getenv("OUTSPAN_PAGE_SHOTS"), v.t.Context()
	for suffix, width := range map[string]int{"light": 1280, "dark": 1280, "phone": 360} {
		if dir == "" && suffix == "dark" {
			continue // it is as wide as the light one
		}
		v.do(v.Look(ctx, width, 900, suffix == "dark"))
		time.Sleep(200 * time.Millisecond) // until it is drawn
		if dir != "" {
			v.do(v.Screenshot(ctx, filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+"-"+suffix+".png")))
		}
		var wide int
		v.do(v.Eval(ctx, "document.documentElement.scrollWidth", &wide))
		if wide > width {
			v.t.Errorf("%s is %d pixels wide in a window of %d", name, wide, width)
		}
	}
	v.do(v.Look(ctx, 1280, 900, false))
}

// opens opens a screen, and waits for a text there.
func (v *tab) opens(hash, text string) {
	v.t.Helper()
	v.run("location.hash = " + jsonOf(hash))
	v.shows(text)
}

// click clicks a button once it is there and enabled.
func (v *tab) click(text string) {
	v.t.Helper()
	v.until(button(text) + "?.disabled === false")
	v.run(button(text) + ".click()")
}

// apart reports where parts of the page cover each other or leave the window, in windows of several widths.
func (v *tab) apart(within ...string) {
	v.t.Helper()
	for _, width := range []int{360, 540, 701, 900, 1280} {
		v.do(v.Look(v.t.Context(), width, 900, false))
		for _, one := range within {
			if got := v.text(`(() => {
				const all = [...document.querySelectorAll(` + jsonOf(one+" > *, "+one+" > .actions > *") + `)]
				const boxes = all.map(e => [e, e.getBoundingClientRect()]).filter(([, b]) => b.width > 1 && b.height > 1)
				const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
					Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1
				return boxes.flatMap(([e, a]) => [a.right > innerWidth + 1 && 'too wide: ' + e.outerHTML,
					...boxes.filter(([f, b]) => f !== e && !e.contains(f) && !f.contains(e) && over(a, b))
						.map(([f]) => e.outerHTML + ' covers ' + f.outerHTML)]).filter(Boolean)[0] || ''
			})()`); got != "" {
				v.t.Errorf("%d pixels: %s", width, got)
			}
		}
	}
	v.do(v.Look(v.t.Context(), 1280, 900, false))
}
