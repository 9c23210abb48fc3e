package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// DifferentState is a server that had another state.
type DifferentState struct {
	Name  string         `json:"name"`
	ID    model.ServerID `json:"id"`
	Index uint64         `json:"index" doc:"at which the states were compared"`
	Time  time.Time      `json:"time" doc:"when that was"`
}

// Verification is a comparison of the states of all servers.
type Verification struct {
	Verdict string           `json:"verdict" enum:"equal,differs,undecided,incomplete" doc:"undecided: servers differ, and no state has a majority of the voters; incomplete: those that could be compared are equal"`
	Index   uint64           `json:"index" doc:"of the states that were compared"`
	Format  uint16           `json:"format" doc:"of these states"`
	Digest  string           `json:"digest" doc:"SHA-256 of the state that a majority of the voters has; empty: none has a majority"`
	Items   []VerifiedServer `json:"items"`
}

// VerifiedServer is one server of a Verification.
type VerifiedServer struct {
	Name    string         `json:"name"`
	ID      model.ServerID `json:"id"`
	Address string         `json:"address"`
	Voter   bool           `json:"voter"`
	Leader  bool           `json:"leader"`
	Version string         `json:"version"`
	Verdict string         `json:"verdict" enum:"equal,differs,behind,unreachable"`
	Index   uint64         `json:"index" doc:"of the state that was compared; the newest that it has where none was; 0: not known"`
	Digest  string         `json:"digest" doc:"empty where none was compared"`
	Detail  string         `json:"detail" doc:"why it was not compared, what in its state contradicts itself, or when it was found to differ"`
	Tables  []TableDiff    `json:"tables" doc:"that differ from those of the majority, or where none has one, from those of the server that was asked"`
}

// TableDiff is one table in which a server differs.
type TableDiff struct {
	Name           string `json:"name"`
	Rows           int    `json:"rows"`
	Digest         string `json:"digest"`
	ExpectedRows   int    `json:"expected_rows"`
	ExpectedDigest string `json:"expected_digest"`
}
