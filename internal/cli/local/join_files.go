package local

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// joinState is what join finds on a machine. In stageNew, cfg is the configuration that the machine gets or, if written
// is true, has already, and ask has the roles for which it needs certificates.
type joinState struct {
	stage   setupStage
	cfg     *config.Config
	written bool
	ask     []pki.Role
}

// look finds out how far this machine is, and changes nothing. Codes: conflict if the directories belong to something
// else or to another cluster, or if the flags contradict the configuration; forbidden if this user can't write them;
// certificate_invalid, gossip_key_invalid, keyring_invalid; invalid.
func (o *joinOptions) look() (joinState, error) {
	cfg, err := o.configured()
	if err != nil {
		return joinState{}, err
	}
	if cfg == nil {
		return o.lookNew()
	}
	err = o.sameCluster(cfg.DataDir)
	if o.newCA = err != nil && o.missedRotation(cfg); err != nil && !o.newCA {
		return joinState{}, err
	}
	ask := o.lacking(cfg)
	if len(ask) == 0 && worked(cfg) {
		if o.server && cfg.Server == nil || !o.server && cfg.Agent == nil {
			_, err := o.allowed(cfg, ask) // it refuses a machine that is to get another role
			return joinState{}, err
		}
		return joinState{stageMember, cfg, true, nil}, nil
	}
	if err := o.contradiction(cfg); err != nil {
		return joinState{}, err
	}
	if ask, err = o.allowed(cfg, ask); err != nil {
		return joinState{}, err
	}
	if err := o.writable(cfg); err != nil {
		return joinState{}, err
	}
	if len(ask) > 0 {
		return joinState{stageNew, cfg, true, ask}, nil
	}
	if _, err := daemon.CheckFiles(cfg); err != nil {
		return joinState{}, err
	}
	return joinState{stageWritten, cfg, true, nil}, nil
}

// missedRotation reports whether the CA of this machine may be one that its cluster has replaced: it is a server with
// data and a certificate. The servers then have to know it by its key; see transport.JoinRequest.
func (o *joinOptions) missedRotation(cfg *config.Config) bool {
	if !o.server || cfg.Server == nil || !cluster.Started(cfg.DataDir) {
		return false
	}
	_, found, err := transport.ManagedDir(cfg.DataDir).Pair(pki.RoleServer)
	return found && err == nil
}

// lacking returns the roles of a configuration whose certificates this machine lacks, or can't use: they have expired,
// lack their key, belong to another name, or are refused by the servers. Certificates that nothing renews are also
// lacking near their end. Without the gossip key it needs all of them.
func (o *joinOptions) lacking(cfg *config.Config) (roles []pki.Role) {
	managed := transport.ManagedDir(cfg.DataDir)
	_, noKey := managed.GossipKeys()
	for _, role := range rolesOf(cfg) {
		_, err := managed.Credentials(cfg.Cluster, role, cfg.Name)
		if !cfg.TLS.Managed {
			err = usableFiles(cfg, role)
		}
		if err != nil || noKey != nil || o.newCA || slices.Contains(o.refused, role) {
			roles = append(roles, role)
		}
	}
	return roles
}

// allowed returns the roles for which the token of the command line may ask. On a server, the token of an agent is
// enough for its agent. A server that has worked makes its own certificate at its start. Code: conflict, also for a
// server that was revoked: its data is of no use any more.
func (o *joinOptions) allowed(cfg *config.Config, ask []pki.Role) ([]pki.Role, error) {
	if cfg.Server != nil && cluster.Started(cfg.DataDir) && slices.Contains(o.refused, pki.RoleServer) {
		return nil, model.Refuse(model.CodeConflict, "the servers refuse the certificate of this server: it was revoked").
			WithHint("to use this machine again, stop it, remove %s, and join with a token that was made after the revocation",
				cfg.DataDir)
	}
	if cfg.Server != nil && !o.server && cluster.Started(cfg.DataDir) {
		ask = slices.DeleteFunc(ask, func(role pki.Role) bool { return role == pki.RoleServer })
	}
	onlyAgent := cfg.Agent != nil && slices.Equal(ask, []pki.Role{pki.RoleAgent})
	if o.server == (cfg.Server != nil) || !o.server && onlyAgent {
		return ask, nil
	}
	if !o.server && cfg.Agent == nil && cfg.TLS.Managed {
		return nil, model.Refuse(model.CodeConflict, "%s makes this machine %s, which runs no agent",
			filepath.Join(o.configDir, configFile), roleText(cfg)).
			WithHint("to make it a worker too, write the block agent {} into %s, and run the same command again; otherwise use "+
				"the token on another machine", filepath.Join(o.configDir, "agent.hcl"))
	}
	return nil, model.Refuse(model.CodeConflict, "%s makes this machine %s", filepath.Join(o.configDir, configFile),
		roleText(cfg)).
		WithHint("remove that file to begin again as another role, or use a token and flags for this one")
}

// lookNew is look for a machine without a configuration.
func (o *joinOptions) lookNew() (joinState, error) {
	managed := transport.ManagedDir(o.dataDir)
	switch {
	case cluster.Started(o.dataDir):
		return joinState{}, o.orphaned("%s has the data of a server, but %s has no configuration")
	case exists(managed.CAKeyFile()):
		return joinState{}, model.Refuse(model.CodeConflict, "outspan up has begun a cluster in %s", o.dataDir).
			WithHint("finish it with: outspan up; to join another cluster, remove %s before", managed.Path())
	case managed.Holds(pki.RoleServer) || managed.Holds(pki.RoleAgent):
		return joinState{}, o.orphaned("%s has certificates of a cluster, but %s has no configuration")
	}
	if err := o.sameCluster(o.dataDir); err != nil {
		return joinState{}, err
	}
	cfg := o.newConfig()
	if o.server {
		cfg.Server = &config.Server{}
	}
	if !o.noAgent {
		cfg.Agent = &config.Agent{}
	}
	if err := completeConfig(cfg); err != nil {
		return joinState{}, err
	}
	return joinState{stageNew, cfg, false, rolesOf(cfg)}, o.writable(cfg)
}

// sameCluster refuses a data directory with the CA of another cluster than that of the token. Codes: conflict,
// certificate_invalid.
func (o *joinOptions) sameCluster(dataDir string) error {
	managed := transport.ManagedDir(dataDir)
	roots, err := managed.Roots()
	if err != nil || len(roots) == 0 {
		return err
	}
	for _, root := range roots {
		if o.token.Names(root) {
			return nil
		}
	}
	hint := ""
	if !cluster.Started(dataDir) {
		hint = fmt.Sprintf("; or, if the cluster has replaced its CA without this machine (outspan ca rotate --force), stop "+
			"it, remove %s, revoke it, and join with a token that was made after that: the node keeps its data",
			managed.Path())
	}
	return model.Refuse(model.CodeConflict, "%s belongs to another cluster than the join token: nothing was changed",
		dataDir).WithHint("choose other directories: --config DIR --data DIR; or, if this machine is to leave that cluster, "+
		"stop it there and remove %s and %s%s", dataDir, filepath.Join(o.configDir, configFile), hint)
}

func (o *joinOptions) differsFromServer(has, given string) error {
	return model.Refuse(model.CodeConflict, "%s says cluster = %q, and the servers are of the cluster %q",
		filepath.Join(o.configDir, configFile), has, given).
		WithHint("remove that file, and run outspan join again")
}

// rolesOf returns the roles of a process, each of which has a certificate.
func rolesOf(cfg *config.Config) (roles []pki.Role) {
	if cfg.Server != nil {
		roles = append(roles, pki.RoleServer)
	}
	if cfg.Agent != nil {
		roles = append(roles, pki.RoleAgent)
	}
	return roles
}

// askedText says as what this machine asks to be admitted.
func askedText(found *joinState) string {
	names := make([]string, len(found.ask))
	for i, role := range found.ask {
		names[i] = string(role)
	}
	return strings.Join(names, " and ") + " " + found.cfg.Name
}

// certificates are the certificates that this machine asks for.
type certificates struct {
	name  string
	keys  map[pki.Role]*ecdsa.PrivateKey
	pairs map[pki.Role]tls.Certificate // set by accept
}

// makeRequests finds the keys of this machine for the roles of ask, or makes them, and the requests for certificates of
// them. The roles of fresh get new keys.
func makeRequests(cfg *config.Config, ask, fresh []pki.Role) (c certificates, r transport.JoinRequest, err error) {
	c = certificates{name: cfg.Name, keys: map[pki.Role]*ecdsa.PrivateKey{}, pairs: map[pki.Role]tls.Certificate{}}
	for _, role := range ask {
		keyOf := transport.ManagedDir(cfg.DataDir).RequestKey
		if slices.Contains(fresh, role) {
			keyOf = transport.ManagedDir(cfg.DataDir).NewRequestKey
		}
		if c.keys[role], err = keyOf(role); err != nil {
			return c, r, err
		}
		var hosts []string // an agent gets none
		if role == pki.RoleServer {
			hosts = []string{cfg.Advertise}
		}
		der, err := pki.RequestFor(c.keys[role], role, cfg.Name, hosts)
		if err != nil {
			return c, r, err
		}
		if role == pki.RoleServer {
			r.Server = der
		} else {
			r.Agent = der
		}
	}
	return c, r, nil
}

// accept checks the reply of a server. It refuses one that would make a machine that can't work. Codes:
// certificate_invalid; certificate_refused if the clock of this machine is wrong.
func (c certificates) accept(reply transport.JoinReply, server pki.JoinServer, now time.Time) error {
	chains := map[pki.Role][][]byte{pki.RoleServer: reply.Server, pki.RoleAgent: reply.Agent}
	for role, key := range c.keys {
		holds := pki.Identity{Cluster: server.ID.Cluster, Role: role, Name: c.name}
		theirs := now
		if chain := chains[role]; len(chain) > 0 && !reply.Files { // another CA does not say when it issued
			if leaf, err := x509.ParseCertificate(chain[0]); err == nil { // Issued refuses any other
				theirs = transport.ServerClock(leaf)
			}
		}
		// By the clock of this machine, which may be wrong, the certificate may not be valid yet.
		pair, err := pki.Issued(chains[role], reply.Roots, key, holds, theirs)
		if err != nil {
			return err
		}
		if off := now.Sub(theirs).Round(time.Second); off.Abs() > pki.ClockTolerance {
			way := "ahead of"
			if off < 0 {
				way = "behind"
			}
			return model.Refuse(model.CodeCertificateRefused, "the clock of this machine says %s, %s %s that of the servers, "+
				"which says %s", pki.Stamp(now), off.Abs().Round(time.Minute), way, pki.Stamp(theirs)).
				WithHint("run date -u here and on a server, set the clock that is wrong, and join again: the token is used only " +
					"once")
		}
		c.pairs[role] = pair
	}
	lacks := ""
	switch {
	case reply.Cluster != server.ID.Cluster:
		lacks = "the right name of the cluster"
	case len(reply.GossipKeys) == 0:
		lacks = "the gossip key"
	case c.keys[pki.RoleServer] != nil && len(reply.Keyring) == 0 && !reply.Files:
		lacks = "the keyring"
	case c.keys[pki.RoleServer] != nil && len(reply.Gossip) == 0:
		lacks = "the gossip addresses of the servers"
	case len(reply.Servers) == 0:
		lacks = "the addresses of the servers"
	default:
		return nil
	}
	return model.Refuse(model.CodeCertificateInvalid, "the reply of %s lacks %s", server.ID, lacks).
		WithHint("try again in a moment; if that does not help, compare the versions on both machines with: outspan version")
}

// write writes the files of this machine, the certificates last. A server that comes back to its cluster keeps its
// keyring and its configuration.
func (o *joinOptions) write(found *joinState, reply transport.JoinReply, c certificates) error {
	cfg, managed := found.cfg, transport.ManagedDir(found.cfg.DataDir)
	if err := o.sameFiles(found, reply); err != nil {
		return err
	}
	err := managed.Write(transport.ManagedFiles{Roots: reply.Roots, GossipKeys: reply.GossipKeys})
	if err != nil {
		return err
	}
	if c.keys[pki.RoleServer] != nil && !o.newCA {
		if !reply.Files {
			if err := addKeyring(filepath.Join(cfg.DataDir, keyring.FileName), reply.Keyring); err != nil {
				return err
			}
		}
		if err := o.noteJoined(found, reply); err != nil {
			return err
		}
	}
	if !found.written {
		cfg.Cluster = reply.Cluster
		if reply.Files {
			nameFiles(cfg)
		}
		if cfg.Server != nil {
			cfg.Server.RetryJoin = reply.Gossip
		}
		if cfg.Agent != nil {
			cfg.Agent.Servers, cfg.Agent.Labels = reply.Servers, reply.Labels
		}
		if err := o.writeConfig(cfg); err != nil {
			return err
		}
	}
	return managed.Write(transport.ManagedFiles{Pairs: c.pairs})
}

// noteJoined records that this server joins a cluster, so that it never begins one. If a configuration of outspan up is
// here, from before this machine lost its data, its bootstrap_expect is replaced by the addresses of the servers.
func (o *joinOptions) noteJoined(found *joinState, reply transport.JoinReply) error {
	cfg := found.cfg
	note := cluster.Joined{Cluster: reply.Cluster}
	for _, der := range reply.Roots {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return err // accept has parsed them
		}
		note.Roots = append(note.Roots, hex.EncodeToString(pki.KeyHash(root)))
	}
	if err := cluster.NoteJoined(cfg.DataDir, note); err != nil {
		return err
	}
	if !found.written || cfg.Server.BootstrapExpect == 0 || cluster.Started(cfg.DataDir) {
		return nil
	}
	path := filepath.Join(o.configDir, configFile)
	src, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) { // the machine was adopted, and another file has it
		return nil
	}
	if err != nil {
		return model.Refuse(model.CodeFile, "can't read %s: %v", path, err)
	}
	join := reply.Gossip
	if len(cfg.Server.RetryJoin) > 0 {
		join = nil // those of the configuration stay
	}
	out, replaced, err := hclfile.ReplaceKey(path, src, "server", "bootstrap_expect", "retry_join", join)
	if err != nil || !replaced { // if another file has it, the record is enough
		return err
	}
	return o.replaceConfig(out)
}

// addKeyring makes a keyring of the encoded keys. If there is a keyring, of a join that was interrupted, it gets the
// keys that it lacks, and the first one becomes active.
func addKeyring(path string, encoded [][]byte) error {
	keys := make([]keyring.Key, 0, len(encoded))
	for _, one := range encoded {
		key, err := keyring.ParseKey(one)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	ring, err := keyring.Open(path)
	var refusal *model.Error
	if errors.As(err, &refusal) && refusal.Code == model.CodeNotFound {
		_, err = keyring.Create(path, keys...)
		return err
	}
	if err != nil {
		return err
	}
	if err := ring.Add(keys...); err != nil {
		return err
	}
	return ring.Activate(keys[0].ID())
}
