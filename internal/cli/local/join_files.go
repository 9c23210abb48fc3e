package local

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"
	"time"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// joinState is what join finds on a machine. In stageNew, cfg is the configuration that the machine gets or, if written
// is true, has already.
type joinState struct {
	stage   setupStage
	cfg     *config.Config
	written bool
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
	if err := o.sameCluster(cfg.DataDir); err != nil {
		return joinState{}, err
	}
	managed := transport.ManagedDir(cfg.DataDir)
	complete := true
	for _, role := range rolesOf(cfg) {
		complete = complete && managed.Holds(role)
	}
	if complete && cfg.Server == nil { // a server renews its certificates itself when it starts
		if complete, err = lasts(managed); err != nil {
			return joinState{}, err
		}
	}
	if complete && worked(cfg) {
		return joinState{stageMember, cfg, true}, nil
	}
	if err := o.contradiction(cfg); err != nil {
		return joinState{}, err
	}
	if o.server != (cfg.Server != nil) {
		return joinState{}, model.Refuse(model.CodeConflict, "%s makes this machine %s",
			filepath.Join(o.configDir, configFile), roleText(cfg)).
			WithHint("remove that file to begin again as another role, or use a token and flags for this one")
	}
	if err := o.writable(cfg); err != nil {
		return joinState{}, err
	}
	if !complete {
		return joinState{stageNew, cfg, true}, nil
	}
	if _, err := daemon.CheckFiles(cfg); err != nil {
		return joinState{}, err
	}
	return joinState{stageWritten, cfg, true}, nil
}

// lasts reports whether the certificate of a worker has not expired. The servers refuse an expired one, so the machine
// has to join again. Code: certificate_invalid.
func lasts(managed transport.Managed) (bool, error) {
	pair, found, err := managed.Pair(pki.RoleAgent)
	if err != nil || !found {
		return false, err
	}
	return time.Now().Before(pair.Leaf.NotAfter), nil
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
	return joinState{stageNew, cfg, false}, o.writable(cfg)
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
	return model.Refuse(model.CodeConflict, "%s belongs to another cluster than the join token: nothing was changed",
		dataDir).WithHint("choose other directories: --config DIR --data DIR; or, if this machine is to leave that cluster, "+
		"stop it there and remove %s and %s", dataDir, filepath.Join(o.configDir, configFile))
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

// certificates are the certificates that this machine asks for.
type certificates struct {
	name  string
	keys  map[pki.Role]*ecdsa.PrivateKey
	pairs map[pki.Role]tls.Certificate // set by accept
}

// makeRequests makes the keys of this machine, or finds those of a join that was interrupted, and the requests for
// certificates of them.
func makeRequests(cfg *config.Config) (c certificates, r transport.JoinRequest, err error) {
	c = certificates{name: cfg.Name, keys: map[pki.Role]*ecdsa.PrivateKey{}, pairs: map[pki.Role]tls.Certificate{}}
	for _, role := range rolesOf(cfg) {
		if c.keys[role], err = transport.ManagedDir(cfg.DataDir).RequestKey(role); err != nil {
			return c, r, err
		}
		der, err := pki.RequestFor(c.keys[role], role, cfg.Name, []string{cfg.Advertise})
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
		if chain := chains[role]; len(chain) > 0 {
			if leaf, err := x509.ParseCertificate(chain[0]); err == nil { // Issued refuses any other
				theirs = transport.ServerClock(leaf)
			}
		}
		// By the clock of this machine, which may be wrong, the certificate may not be valid yet.
		pair, err := pki.Issued(chains[role], reply.Roots, key, holds, theirs)
		if err != nil {
			return err
		}
		if off := now.Sub(theirs).Abs(); off > pki.ClockTolerance {
			return model.Refuse(model.CodeCertificateRefused, "the clock of this machine says %s, that of the servers %s",
				pki.Stamp(now), pki.Stamp(theirs)).
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
	case c.keys[pki.RoleServer] != nil && len(reply.Keyring) == 0:
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

// write writes the files of this machine, the certificates last.
func (o *joinOptions) write(found *joinState, reply transport.JoinReply, c certificates) error {
	cfg, managed := found.cfg, transport.ManagedDir(found.cfg.DataDir)
	err := managed.Write(transport.ManagedFiles{Roots: reply.Roots, GossipKey: reply.GossipKeys[0]})
	if err != nil {
		return err
	}
	if cfg.Server != nil {
		if err := addKeyring(filepath.Join(cfg.DataDir, keyring.FileName), reply.Keyring); err != nil {
			return err
		}
	}
	if !found.written {
		cfg.Cluster = reply.Cluster
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
