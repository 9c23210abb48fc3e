package fsm

// TableDigest is the digest of one table of a state.
type TableDigest struct {
	Name   string `cbor:"1,keyasint" json:"name"`
	Rows   int    `cbor:"2,keyasint" json:"rows"`
	Digest string `cbor:"3,keyasint" json:"digest"` // SHA-256, in hex, of the table's rows in canonical form
}

// Digests returns the Digest of a state and a digest of each table, the scalars first. The digests of tables show where
// two states differ. Digests takes 10 % longer than Digest. Safe for concurrent use.
func Digests(s State) (whole string, tables []TableDigest) {
	sums := make([]tableSum, 1+len(rowTables))
	for i := range sums {
		sums[i].rowSum = newRowSum()
	}
	all, at := newRowSum(), 0
	err := s.eachRow(func(t tableID, body []byte) error {
		for at > 0 && rowTables[at-1].id != t || at == 0 && t != metaTable {
			at++ // eachRow visits the scalars first, and then the tables in order
		}
		sums[at].add(t, body)
		sums[at].rows++
		all.add(t, body)
		return nil
	})
	if err != nil { // every type of row can be encoded
		panic(err)
	}
	tables = append(tables, sums[0].named(ScalarsTable))
	for i := range rowTables {
		tables = append(tables, sums[1+i].named(rowTables[i].name))
	}
	return all.String(), tables
}

// TableDigests returns a digest of each table, the scalars first.
func TableDigests(s State) []TableDigest {
	_, tables := Digests(s)
	return tables
}

type tableSum struct {
	*rowSum
	rows int
}

func (t *tableSum) named(name string) TableDigest { return TableDigest{name, t.rows, t.String()} }

// TableDifference is a table whose rows differ between two states A and B. If one of the two states lacks the table,
// the TableDigest of that state is the zero value.
type TableDifference struct {
	Name string      `json:"name"`
	A    TableDigest `json:"a"`
	B    TableDigest `json:"b"`
}

// DifferentTables lists the tables whose digests differ between two states.
func DifferentTables(a, b []TableDigest) []TableDifference {
	var out []TableDifference
	for _, t := range a {
		if other := tableNamed(b, t.Name); other != t {
			out = append(out, TableDifference{t.Name, t, other})
		}
	}
	for _, t := range b {
		if (tableNamed(a, t.Name) == TableDigest{}) {
			out = append(out, TableDifference{Name: t.Name, B: t})
		}
	}
	return out
}

func tableNamed(all []TableDigest, name string) TableDigest {
	for _, t := range all {
		if t.Name == name {
			return t
		}
	}
	return TableDigest{}
}
