package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// Files that a server writes when a majority has another state. checkReport does not let the server start while the
// report exists.
const (
	dirDiffers   = "state-differs"
	fileReport   = "report.json"
	fileState    = "state.snap"
	reportFormat = 1
	// reportTimeout bounds the writing of the report, so that a server with a wrong state stops even if its disk hangs.
	reportTimeout = 30 * time.Second
)

// StateReport is what a server writes before it exits because a majority of the voters has another state.
type StateReport struct {
	Report  int            `json:"report"` // format of the report; 1
	Time    time.Time      `json:"time"`
	Server  model.ServerID `json:"server"`
	Name    string         `json:"name"`
	Version string         `json:"version"` // of the program
	Cluster string         `json:"cluster_id"`
	Led     bool           `json:"led"` // whether the server was the leader

	Index       uint64 `json:"index"` // of the states that were compared
	Term        uint64 `json:"term"`  // of the last entry in this server's state
	Incarnation uint64 `json:"incarnation"`
	Format      uint16 `json:"format"`

	Digest   string                `json:"digest"`   // of this server's state
	Majority string                `json:"majority"` // the digest that the majority has
	Voters   []model.ServerID      `json:"voters"`
	Agreeing []model.ServerID      `json:"agreeing"` // the voters that have the digest Majority
	Tables   []fsm.TableDifference `json:"tables"`   // the tables that differ; A is this server's, B the majority's digest
	State    string                `json:"state"`    // name of the file with this server's state, beside the report
}

// condemn stops this server permanently, because a majority has another state. First, this server stops deciding and
// answering as a leader. Then condemn writes the report and ends the process.
func (c *comparer) condemn(m meeting, judged Comparison) {
	_, led, _ := c.s.Leader()
	c.wrong.Store(true)
	report := c.report(m, judged, led)
	dir := c.s.dir.file(dirDiffers)
	err := model.Refuse(model.CodeStateDiffers,
		"the state of this server at index %d is not the one that %d of %d voters have; it differs in: %s",
		m.key.Index, len(report.Agreeing), len(report.Voters), strings.Join(namesOf(report.Tables), ", ")).
		WithHint("%s says more; keep it, empty the rest of the data directory and start again: the server joins as a new one",
			dir)
	c.log.Error("a majority has another state, this server stops", "index", m.key.Index, "own", report.Digest,
		"majority", report.Majority,
		"agreeing", report.Agreeing, "tables", namesOf(report.Tables), "report", dir)
	c.s.failWith(err, func() {
		done := make(chan error, 1)
		state, _ := c.past.find(m.key, c.s.cfg.Machine.State())
		go func() { done <- writeReport(dir, report, state) }()
		select {
		case err := <-done:
			if err != nil {
				c.log.Error("can't write the whole report", "dir", dir, "error", err)
			}
		case <-time.After(reportTimeout):
			c.log.Error("the report was not written in time", "dir", dir)
		}
	})
}

func (c *comparer) report(m meeting, judged Comparison, led bool) StateReport {
	own := m.own()
	majority, _ := judged.Majority()
	agreeing := judged.agreeing(majority)
	state, _ := c.past.find(m.key, c.s.cfg.Machine.State())
	return StateReport{
		Report: reportFormat, Time: time.Now().UTC(), Server: c.s.dir.id, Name: c.s.cfg.Name, Version: c.s.cfg.Version,
		Cluster: c.s.ClusterID(), Led: led,
		Index: m.key.Index, Term: state.LogTerm, Incarnation: m.key.Incarnation, Format: m.key.Format,
		Digest: own.digest, Majority: majority, Voters: judged.Voters, Agreeing: agreeing,
		Tables: fsm.DifferentTables(own.tables, m.sums[agreeing[0]].tables), State: fileState,
	}
}

// writeReport writes the report before the state, because the report alone keeps the server from starting again.
func writeReport(dir string, r StateReport, state fsm.State) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the report: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := durable.ReplaceBytes(filepath.Join(dir, fileReport), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, fileState), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	if err := errors.Join(fsm.WriteSnapshot(f, state), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

// ReadReport reads the report of a server that a majority contradicted. ok is false only if there is no report: a
// report that can't be read gives true and an error.
func ReadReport(dataDir string) (r StateReport, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(dataDir, dirDiffers, fileReport))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, false, nil
	case err == nil:
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, true, fmt.Errorf("read the report of a wrong state: %w", err)
	}
	return r, true, nil
}

// checkReport refuses a data directory whose state a majority contradicted. Otherwise a supervisor might restart the
// server again and again. After each start the server would vote, and might lead, until its next comparison. A
// directory whose server id is missing, or is not that in the report, belongs to a new server and is accepted. Code:
// state_differs.
func checkReport(dataDir string) error {
	r, found, err := ReadReport(dataDir)
	if !found {
		return err
	}
	if id, unread := os.ReadFile(filepath.Join(dataDir, fileServerID)); err == nil {
		if errors.Is(unread, fs.ErrNotExist) || unread == nil && strings.TrimSpace(string(id)) != string(r.Server) {
			return nil
		}
	}
	dir := filepath.Join(dataDir, dirDiffers)
	what := fmt.Sprintf("the state in %s was contradicted by a majority of the servers", dataDir)
	if err == nil {
		what += fmt.Sprintf(" at index %d on %s", r.Index, r.Time.Format(time.RFC3339))
	}
	return model.Refuse(model.CodeStateDiffers, "%s", what).
		WithHint("keep %s, empty the rest of the data directory and start again: the server joins as a new one", dir)
}
