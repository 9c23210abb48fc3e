package chrome

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// keys has the codes of keys that are not letters.
var keys = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "PageUp": 33, "PageDown": 34, "End": 35,
	"Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}

// modifiers has the bits of keys that are held down meanwhile.
var modifiers = map[string]int{"Control": 2, "Shift": 8}

// Press presses a key, such as Tab, Enter or Control+End, or types a text.
func (p *Page) Press(ctx context.Context, key string) error {
	held := 0
	for name, bit := range modifiers {
		if rest, ok := strings.CutPrefix(key, name+"+"); ok {
			key, held = rest, bit
		}
	}
	code, named := keys[key]
	if !named {
		return p.call(ctx, "Input.insertText", map[string]any{"text": key}, nil)
	}
	down := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": held}
	if text := map[string]string{"Enter": "\r", " ": " "}[key]; text != "" {
		down["text"] = text
	}
	return errors.Join(p.call(ctx, "Input.dispatchKeyEvent", down, nil), p.call(ctx, "Input.dispatchKeyEvent",
		map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": held}, nil))
}

// Spoken is a thing in the page as a program tells it that reads a screen aloud.
type Spoken struct {
	Role, Name string
	Value      string // of a field
	Focused    bool
	Disabled   bool
	Live       bool // it is told by itself when it changes
}

// String returns what a person would hear.
func (s Spoken) String() string {
	text := s.Role + " " + fmt.Sprintf("%q", s.Name)
	if s.Value != "" {
		text += fmt.Sprintf(" = %q", s.Value)
	}
	if s.Disabled {
		text += " disabled"
	}
	if s.Focused {
		text += " focused"
	}
	if s.Live {
		text += " live"
	}
	return text
}

// Reader uses a page by ear and keyboard: it knows the page's accessibility tree and presses keys, and has neither a
// mouse nor the document.
type Reader struct{ p *Page }

// Reader returns a reader of the page.
func (p *Page) Reader() *Reader { return &Reader{p} }

// Listen returns what the page tells, in the order in which it is read.
func (r *Reader) Listen(ctx context.Context) ([]Spoken, error) {
	type value struct{ Value any }
	var got struct {
		Nodes []struct {
			NodeID, ParentID  string
			ChildIDs          []string
			Ignored           bool
			Role, Name, Value value
			Properties        []struct {
				Name  string
				Value value
			}
		}
	}
	if err := r.p.call(ctx, "Accessibility.getFullAXTree", nil, &got); err != nil {
		return nil, err
	}
	place, roots := map[string]int{}, []string(nil)
	for i, n := range got.Nodes {
		place[n.NodeID] = i
		if n.ParentID == "" {
			roots = append(roots, n.NodeID)
		}
	}
	text := func(v value) string {
		if v.Value == nil {
			return ""
		}
		return fmt.Sprint(v.Value)
	}
	var all []Spoken
	var walk func(id string, live bool)
	walk = func(id string, live bool) {
		i, ok := place[id]
		if !ok {
			return
		}
		n := got.Nodes[i]
		if text(n.Role) == "InlineTextBox" { // a line of a text that was told
			return
		}
		if !n.Ignored {
			one := Spoken{Role: text(n.Role), Name: text(n.Name), Value: text(n.Value), Live: live}
			for _, p := range n.Properties {
				on, _ := p.Value.Value.(bool)
				one.Focused = one.Focused || p.Name == "focused" && on
				one.Disabled = one.Disabled || p.Name == "disabled" && on
				one.Live = one.Live || p.Name == "live" && text(p.Value) != "off"
			}
			all, live = append(all, one), one.Live
		}
		for _, child := range n.ChildIDs {
			walk(child, live)
		}
	}
	for _, root := range roots {
		walk(root, false)
	}
	return all, nil
}

// At returns what has the focus.
func (r *Reader) At(ctx context.Context) (Spoken, error) {
	all, err := r.Listen(ctx)
	if err != nil {
		return Spoken{}, err
	}
	found := Spoken{}
	for _, one := range all { // the page has it too
		if one.Focused {
			found = one
		}
	}
	return found, nil
}

// Await waits until the page tells something of this role whose name contains the text, at most for limit. The role
// "live" stands for what is told by itself when it changes. An error has all that the page tells.
func (r *Reader) Await(ctx context.Context, limit time.Duration, role, text string) (Spoken, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var all []Spoken
	for {
		now, err := r.Listen(ctx)
		if err == nil {
			all = now
		}
		for _, one := range all {
			if (one.Role == role || role == "live" && one.Live) && strings.Contains(one.Name, text) {
				return one, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Spoken{}, errors.Join(fmt.Errorf("no %s %q after %v; the page tells:\n%s", role, text, limit, lines(all)),
				err)
		}
	}
}

// Go presses a key, such as Tab or ArrowDown, until something of this role with exactly this name has the focus. After
// most presses it is an error, which has all that had the focus.
func (r *Reader) Go(ctx context.Context, key string, most int, role, name string) error {
	var heard []Spoken
	for range most {
		if err := r.p.Press(ctx, key); err != nil {
			return err
		}
		at, err := r.At(ctx)
		if err != nil {
			return err
		}
		if at.Role == role && at.Name == name {
			return nil
		}
		heard = append(heard, at)
	}
	return fmt.Errorf("%d times %s lead to no %s %q, but to:\n%s", most, key, role, name, lines(heard))
}

func lines(all []Spoken) string {
	var text []string
	for _, one := range all {
		if one.Name != "" || one.Focused {
			text = append(text, one.String())
		}
	}
	return strings.Join(slices.Compact(text), "\n")
}
