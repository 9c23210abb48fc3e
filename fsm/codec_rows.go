package fsm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"iter"

	"github.com/outspan/outspan/internal/canon"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// tableID is a table's number in snapshots and digests. A number is never reused.
type tableID uint8

// Ids of the frames that are not rows of a table. The first frame of a snapshot has the scalars of the state, and the
// last frame is the trailer.
const (
	metaTable    tableID = 1
	trailerTable tableID = 255
)

// rowTable encodes and decodes the rows of one table.
type rowTable struct {
	id   tableID
	name string
	// each visits the canonical bytes of each row, which are valid only during the visit.
	each func(s *State, visit func(body []byte) error) error
	add  func(s *State, body []byte, texts sharing) *model.Error
	size func(s *State) int
	all  func(s *State) iter.Seq2[string, any] // rows with their keys as strings
	diff func(a, b *State) []RowChange
}

// rowTables lists every table, in the order of snapshots and digests.
var rowTables = [...]rowTable{
	rows(2, "nodes", func(s *State) *Table[model.NodeID, *Node] {
		return &s.Nodes
	}, func(n *Node) model.NodeID { return n.ID }),
	rows(3, "jobs", func(s *State) *Table[model.JobName, *Job] {
		return &s.Jobs
	}, func(j *Job) model.JobName { return j.Name }),
	rows(4, "versions", func(s *State) *Table[string, *JobVersion] { return &s.Versions },
		func(v *JobVersion) string { return versionKey(v.Job, v.Version) }),
	rows(5, "groups", func(s *State) *Table[model.GroupID, *Group] {
		return &s.Groups
	}, func(g *Group) model.GroupID { return g.ID }),
	rows(6, "instances", func(s *State) *Table[model.InstanceID, *Instance] {
		return &s.Instances
	}, func(i *Instance) model.InstanceID { return i.ID }),
	rows(7, "drains", func(s *State) *Table[model.DrainID, *Drain] {
		return &s.Drains
	}, func(d *Drain) model.DrainID { return d.ID }),
	rows(8, "deployments", func(s *State) *Table[model.DeploymentID, *Deployment] { return &s.Deployments },
		func(d *Deployment) model.DeploymentID { return d.ID }),
	rows(9, "services", func(s *State) *Table[model.ServiceName, *Service] {
		return &s.Services
	}, func(v *Service) model.ServiceName { return v.Name }),
	rows(10, "volumes", func(s *State) *Table[model.VolumeID, *Volume] {
		return &s.Volumes
	}, func(v *Volume) model.VolumeID { return v.ID }),
	eventRows(11, "events"),
	rows(12, "requests", func(s *State) *Table[model.RequestID, *Request] {
		return &s.Requests
	}, func(r *Request) model.RequestID { return r.ID }),
	rows(16, "transfers", func(s *State) *Table[model.TransferID, *Transfer] {
		return &s.Transfers
	}, func(t *Transfer) model.TransferID { return t.ID }),
	rows(17, "backups", func(s *State) *Table[model.BackupID, *Backup] {
		return &s.Backups
	}, func(b *Backup) model.BackupID { return b.ID }),
	rows(13, "budgets", func(s *State) *Table[model.BudgetName, *SharedBudget] {
		return &s.Budgets
	}, func(b *SharedBudget) model.BudgetName { return b.Name }),
	rows(14, "actors", func(s *State) *Table[model.StopOrigin, *ActorLedger] {
		return &s.Actors
	}, func(l *ActorLedger) model.StopOrigin { return l.Actor }),
	rows(15, "rails", func(s *State) *Table[RailName, *Rail] {
		return &s.Rails
	}, func(r *Rail) RailName { return r.Name }),
	rows(18, "trustkeys", func(s *State) *Table[model.KeyName, *TrustKey] {
		return &s.TrustKeys
	}, func(k *TrustKey) model.KeyName { return k.Name }),
	rows(19, "jointokens", func(s *State) *Table[model.TokenID, *JoinToken] {
		return &s.JoinTokens
	}, func(t *JoinToken) model.TokenID { return t.ID }),
	rows(20, "trustmembers", func(s *State) *Table[string, *TrustMember] { return &s.TrustMembers },
		func(m *TrustMember) string { return m.Subject.String() }),
	rows(22, "people", func(s *State) *Table[string, *Person] { return &s.People },
		func(p *Person) string { return p.Subject.Name }),
	rows(23, "roles", func(s *State) *Table[rights.RoleName, *RightsRole] { return &s.Roles },
		func(r *RightsRole) rights.RoleName { return r.Name }),
	rows(24, "bindings", func(s *State) *Table[string, *RightsBinding] { return &s.Bindings }, (*RightsBinding).rowKey),
	rows(25, "accesstokens", func(s *State) *Table[model.TokenID, *AccessToken] { return &s.AccessTokens },
		func(t *AccessToken) model.TokenID { return t.ID }),
	rows(21, "newcomers", func(s *State) *Table[string, *Newcomer] { return &s.Newcomers }, (*Newcomer).rowKey),
	rows(26, "pulls", func(s *State) *Table[string, *Pull] { return &s.Pulls },
		func(c *Pull) string { return slotPrefix(c.Group, c.Slot) }),
}

func rows[K cmp.Ordered, V any](id tableID, name string, table func(*State) *Table[K, *V], key func(*V) K) rowTable {
	return rowTable{
		id: id, name: name,
		size: func(s *State) int { return table(s).Len() },
		diff: func(a, b *State) []RowChange {
			return diffTable(name, *table(a), *table(b), func(row *V) any { return row })
		},
		all: func(s *State) iter.Seq2[string, any] { return rowsByText(table(s).All()) },
		each: func(s *State, visit func([]byte) error) error {
			var buf bytes.Buffer
			for key, row := range table(s).All() {
				buf.Reset()
				if err := wire.enc.MarshalToBuffer(row, &buf); err != nil {
					return model.Refuse(model.CodeInternal, "row %v of %s can't be encoded: %v", key, name, err)
				}
				if err := visit(buf.Bytes()); err != nil {
					return err
				}
			}
			return nil
		},
		add: func(s *State, body []byte, texts sharing) *model.Error {
			row := new(V)
			if err := decodeRow(name, body, row); err != nil {
				return err
			}
			if shares, ok := any(row).(interface{ shareTexts(sharing) }); ok {
				shares.shareTexts(texts)
			}
			t := table(s)
			if last, _, some := t.Max(); some && key(row) <= last {
				return damaged("table %s is out of order at %v", name, key(row))
			}
			t.put(key(row), row)
			return nil
		},
	}
}

// rowsByText iterates over the rows of a table, with their keys as strings.
func rowsByText[K cmp.Ordered, V any](rows iter.Seq2[K, V]) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for key, row := range rows {
			if !yield(fmt.Sprint(key), row) {
				return
			}
		}
	}
}

// metaRow has the scalars of a State, which are all fields that are not in a table.
type metaRow struct {
	Index         uint64         `cbor:"1,keyasint"`
	LogTerm       uint64         `cbor:"2,keyasint"`
	Now           model.Time     `cbor:"3,keyasint"`
	Wall          int64          `cbor:"4,keyasint"`
	Format        uint16         `cbor:"5,keyasint"`
	Incarnation   uint64         `cbor:"6,keyasint"`
	Unconfirmed   bool           `cbor:"7,keyasint,omitempty"`
	Cluster       ClusterID      `cbor:"8,keyasint"`
	Settings      model.Settings `cbor:"9,keyasint"`
	SettingsIndex uint64         `cbor:"10,keyasint"`
	Hold          Hold           `cbor:"11,keyasint"`
	Classes       []Class        `cbor:"12,keyasint"`
	Confirmed     model.Time     `cbor:"13,keyasint,omitempty"`
	WallDoubt     WallDoubt      `cbor:"14,keyasint"`
	Restored      uint64         `cbor:"15,keyasint,omitempty"`
	Leader        Leader         `cbor:"16,keyasint,omitzero"`
	RightsIndex   uint64         `cbor:"17,keyasint,omitempty"`
}

func (s *State) meta() metaRow {
	return metaRow{
		s.Index, s.LogTerm, s.Now, s.Wall, s.Format, s.Incarnation, s.Unconfirmed, s.Cluster, s.Settings, s.SettingsIndex,
		s.Hold, s.Classes, s.Confirmed, s.WallDoubt,
		s.Restored, s.Leader, s.RightsIndex,
	}
}

// empty returns a writable State with the scalars of m and no rows.
func (m *metaRow) empty() *State {
	s := State{
		Index: m.Index, LogTerm: m.LogTerm, Now: m.Now, Wall: m.Wall, WallDoubt: m.WallDoubt, Format: m.Format,
		Incarnation: m.Incarnation, Unconfirmed: m.Unconfirmed, Confirmed: m.Confirmed, Restored: m.Restored,
		Cluster: m.Cluster, Hold: m.Hold, Leader: m.Leader,
		rules: rules{Settings: m.Settings, SettingsIndex: m.SettingsIndex, Classes: m.Classes},
		trust: trust{RightsIndex: m.RightsIndex},
	}
	return s.fork()
}

func decodeRow(what string, body []byte, row any) *model.Error {
	if len(body) == 0 || body[0]>>5 != canon.Map {
		return damaged("a row of %s is no map", what)
	}
	if err := wire.row.Unmarshal(body, row); err != nil {
		return explain("a row of "+what+" in the snapshot", err)
	}
	return nil
}

// eachRow visits the canonical bytes of the scalars, and then of each row. Tables are in the order of rowTables, and
// the rows of a table are in the order of their keys. The bytes are valid only during the visit.
func (s *State) eachRow(visit func(t tableID, body []byte) error) error {
	scalars, err := wire.enc.Marshal(s.meta())
	if err != nil {
		return model.Refuse(model.CodeInternal, "the scalars can't be encoded: %v", err)
	}
	if err := visit(metaTable, scalars); err != nil {
		return err
	}
	for i := range rowTables {
		t := &rowTables[i]
		if err := t.each(s, func(body []byte) error { return visit(t.id, body) }); err != nil {
			return err
		}
	}
	return nil
}

// rowSum computes the digest of a state, which is the SHA-256 over the frames of its snapshot, without the trailer.
type rowSum struct {
	hash hash.Hash
	head []byte // reused, because the input of a hash.Hash escapes to the heap
}

func newRowSum() *rowSum { return &rowSum{hash: sha256.New()} }

func (r *rowSum) add(t tableID, body []byte) {
	r.head = appendFrameHead(r.head[:0], t, body)
	r.hash.Write(r.head)
	r.hash.Write(body)
}

func (r *rowSum) String() string { return hex.EncodeToString(r.hash.Sum(nil)) }

// Digest returns the SHA-256, in hex, of all rows and scalars of the state in canonical form. Servers compare the
// digests of their states after the same entry. Digest takes about 2 microseconds a row. It only reads s, so it may run
// concurrently with everything else.
func Digest(s State) string {
	sum := newRowSum()
	err := s.eachRow(func(t tableID, body []byte) error {
		sum.add(t, body)
		return nil
	})
	if err != nil { // every type of row can be encoded
		panic(err)
	}
	return sum.String()
}
