package client_test

import (
	"context"
	"net"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// These options set every field, so that the test finds parameters of the API that no option sends.
var (
	index = uint64(7)
	ro    = client.ReadOptions{Consistency: client.Stale, Index: 7}
	lo    = client.ListOptions{ReadOptions: ro, Filter: []string{"a=b"}, Fields: []string{"id"}, PageSize: 5}
	wo    = client.WriteOptions{RequestID: "r1", DryRun: true}
	co    = client.ChangeOptions{WriteOptions: wo, IfIndex: &index}
	mo    = client.MemberOptions{RequestID: "r1"}
	so    = client.JobStatsOptions{Group: "x"}
	il    = client.ImageListOptions{Node: "x"}
	po    = client.PlanOptions{Consistency: client.Stale}
	logs  = client.LogOptions{Stream: client.Stderr, Follow: true, Tail: new(3), Timestamps: true, Since: "1h"}
)

// notForClients lists operations that only servers call.
var notForClients = []string{"ask-peer", "relay-agents"}

// operations has a call for each operation that clients may call, by operationId. All objects are named "x".
var operations = map[string]func(context.Context, *client.Client) (any, error){
	"healthz": func(ctx context.Context, c *client.Client) (any, error) { return c.Cluster.Alive(ctx) },
	"readyz":  func(ctx context.Context, c *client.Client) (any, error) { return c.Cluster.Ready(ctx, true) },
	"metrics": func(ctx context.Context, c *client.Client) (any, error) { return c.Cluster.Metrics(ctx) },
	"openapi": func(ctx context.Context, c *client.Client) (any, error) { return c.Cluster.OpenAPI(ctx) },
	"status":  func(ctx context.Context, c *client.Client) (any, error) { return c.Cluster.Status(ctx, ro) },
	"why":     func(ctx context.Context, c *client.Client) (any, error) { return c.Cluster.Why(ctx, "x", ro) },
	"forecast-rebalance": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Cluster.ForecastRebalance(ctx, ro)
	},
	"rebalance": func(ctx context.Context, c *client.Client) (any, error) { return c.Cluster.Rebalance(ctx, wo) },
	"unknown-instances": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Cluster.UnknownInstances(ctx)
	},
	"list-backups":  func(ctx context.Context, c *client.Client) (any, error) { return c.Backups.List(ctx, lo) },
	"get-backup":    func(ctx context.Context, c *client.Client) (any, error) { return c.Backups.Get(ctx, "x", ro) },
	"forget-backup": func(ctx context.Context, c *client.Client) (any, error) { return c.Backups.Forget(ctx, "x", wo) },
	"restore-backup": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Backups.Restore(ctx, "x", api.RestoreBody{}, wo)
	},
	"list-budgets": func(ctx context.Context, c *client.Client) (any, error) { return c.Budgets.List(ctx, lo) },
	"get-budget":   func(ctx context.Context, c *client.Client) (any, error) { return c.Budgets.Get(ctx, "x", ro) },
	"get-group-budget": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Budgets.OfGroup(ctx, "x", "x", ro)
	},
	"set-budget": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Budgets.Set(ctx, "x", model.BudgetSpec{}, wo)
	},
	"remove-budget": func(ctx context.Context, c *client.Client) (any, error) { return c.Budgets.Remove(ctx, "x", wo) },
	"list-roles":    func(ctx context.Context, c *client.Client) (any, error) { return c.Auth.Roles(ctx, lo) },
	"get-role":      func(ctx context.Context, c *client.Client) (any, error) { return c.Auth.Role(ctx, "x", ro) },
	"set-rights": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Auth.SetRights(ctx, api.RightsBody{}, wo)
	},
	"set-role": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Auth.SetRole(ctx, "x", api.RoleBody{}, wo)
	},
	"remove-role":   func(ctx context.Context, c *client.Client) (any, error) { return c.Auth.RemoveRole(ctx, "x", wo) },
	"list-bindings": func(ctx context.Context, c *client.Client) (any, error) { return c.Auth.Bindings(ctx, lo) },
	"grant": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Auth.Grant(ctx, api.BindingBody{Role: "x", To: "cert:x"}, wo)
	},
	"list-access-tokens": func(ctx context.Context, c *client.Client) (any, error) { return c.Auth.AccessTokens(ctx, lo) },
	"create-access-token": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Auth.CreateAccessToken(ctx, api.AccessTokenBody{}, wo)
	},
	"revoke-access-token": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Auth.RevokeAccessToken(ctx, "x", wo)
	},
	"revoke-binding": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Auth.Revoke(ctx, api.BindingBody{Role: "x", To: "cert:x"}, wo)
	},
	"list-providers": func(ctx context.Context, c *client.Client) (any, error) { return c.Auth.Providers(ctx) },
	"login": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Auth.Login(ctx, api.LoginBody{}, wo)
	},
	"logout": func(ctx context.Context, c *client.Client) (any, error) { return c.Auth.Logout(ctx, wo) },
	"whoami": func(ctx context.Context, c *client.Client) (any, error) { return c.Auth.WhoAmI(ctx, ro) },
	"can-i": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Auth.CanI(ctx, "job.submit", client.CanIOptions{ReadOptions: ro, Object: "job/web", As: "cert:x",
			Asks: []rights.Ask{{List: "ports", Name: "443"}}})
	},
	"list-classes": func(ctx context.Context, c *client.Client) (any, error) { return c.Classes.List(ctx, lo) },
	"get-class":    func(ctx context.Context, c *client.Client) (any, error) { return c.Classes.Get(ctx, "x", ro) },
	"set-class": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Classes.Set(ctx, "x", api.ClassBody{}, wo)
	},
	"remove-class": func(ctx context.Context, c *client.Client) (any, error) { return c.Classes.Remove(ctx, "x", wo) },
	"list-deployments": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Deployments.List(ctx, client.DeploymentListOptions{ListOptions: lo, Job: "x"})
	},
	"get-deployment": func(ctx context.Context, c *client.Client) (any, error) { return c.Deployments.Get(ctx, "x", ro) },
	"promote-deployment": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Deployments.Promote(ctx, "x", wo)
	},
	"fail-deployment": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Deployments.Fail(ctx, "x", api.FailBody{}, wo)
	},
	"list-drains": func(ctx context.Context, c *client.Client) (any, error) { return c.Drains.List(ctx, lo) },
	"get-drain":   func(ctx context.Context, c *client.Client) (any, error) { return c.Drains.GetWithLanes(ctx, "x", ro) },
	"start-drain": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Drains.Start(ctx, api.DrainBody{}, wo)
	},
	"cancel-drain": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Drains.Cancel(ctx, "x", api.CancelBody{}, wo)
	},
	"pause-drain":  func(ctx context.Context, c *client.Client) (any, error) { return c.Drains.Pause(ctx, "x", wo) },
	"resume-drain": func(ctx context.Context, c *client.Client) (any, error) { return c.Drains.Resume(ctx, "x", wo) },
	"list-images":  func(ctx context.Context, c *client.Client) (any, error) { return c.Images.List(ctx, il) },
	"prune-images": func(ctx context.Context, c *client.Client) (any, error) { return c.Images.Prune(ctx, "x", wo) },
	"list-instances": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Instances.List(ctx, client.InstanceListOptions{ListOptions: lo, Job: "x", Group: "x", Node: "x", All: true})
	},
	"get-instance":   func(ctx context.Context, c *client.Client) (any, error) { return c.Instances.Get(ctx, "x", ro) },
	"why-instance":   func(ctx context.Context, c *client.Client) (any, error) { return c.Instances.Why(ctx, "x", ro) },
	"instance-stats": func(ctx context.Context, c *client.Client) (any, error) { return c.Instances.Stats(ctx, "x") },
	"job-stats":      func(ctx context.Context, c *client.Client) (any, error) { return c.Jobs.Stats(ctx, "x", so) },
	"evict-instance": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Instances.Evict(ctx, "x", api.EvictBody{}, wo)
	},
	"stop-instance": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Instances.Stop(ctx, "x", api.EvictBody{}, wo)
	},
	"restart-instance": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Instances.Restart(ctx, "x", wo)
	},
	"exec-instance": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Instances.Exec(ctx, "x", client.ExecOptions{Command: []string{"x"}})
	},
	"forward-instance": func(ctx context.Context, c *client.Client) (any, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return nil, c.Instances.Forward(ctx, "x", "x", l, client.ForwardOptions{})
	},
	"instance-logs": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Instances.Logs(ctx, "x", client.InstanceLogOptions{LogOptions: logs, Offset: new(int64(3))})
	},

	"list-jobs":         func(ctx context.Context, c *client.Client) (any, error) { return c.Jobs.List(ctx, lo) },
	"get-job":           func(ctx context.Context, c *client.Client) (any, error) { return c.Jobs.Get(ctx, "x", ro) },
	"list-job-versions": func(ctx context.Context, c *client.Client) (any, error) { return c.Jobs.Versions(ctx, "x", lo) },
	"get-job-version": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Jobs.Version(ctx, "x", 3, ro)
	},
	"get-job-file": func(ctx context.Context, c *client.Client) (any, error) { return c.Jobs.File(ctx, "x", 3, ro) },
	"parse-job":    func(ctx context.Context, c *client.Client) (any, error) { return c.Jobs.Parse(ctx, "", po) },
	"submit-job": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Jobs.Submit(ctx, api.SubmitBody{}, co)
	},
	"validate-job": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Jobs.Validate(ctx, api.SubmitBody{}, po)
	},
	"plan-job": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Jobs.Plan(ctx, api.SubmitBody{Job: model.JobSpec{Name: "x"}}, po)
	},
	"scale-job": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Jobs.Scale(ctx, "x", api.ScaleBody{}, wo)
	},
	"stop-job": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Jobs.Stop(ctx, "x", api.StopBody{}, wo)
	},
	"restart-job": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Jobs.Restart(ctx, "x", api.RestartBody{}, wo)
	},
	"revert-job": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Jobs.Revert(ctx, "x", api.RevertBody{}, wo)
	},
	"job-logs": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Jobs.Logs(ctx, "x", client.JobLogOptions{LogOptions: logs, Group: "x", Running: true})
	},

	"list-members": func(ctx context.Context, c *client.Client) (any, error) { return c.Members.List(ctx, lo) },
	"join-member": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Members.Join(ctx, api.JoinBody{}, mo)
	},
	"promote-member": func(ctx context.Context, c *client.Client) (any, error) { return c.Members.Promote(ctx, "x", mo) },
	"transfer-leader-member": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Members.TransferLeader(ctx, api.TransferBody{}, mo)
	},
	"verify-members": func(ctx context.Context, c *client.Client) (any, error) { return c.Members.Verify(ctx, 5) },
	"remove-member": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Members.Remove(ctx, "x", client.RemoveOptions{MemberOptions: mo, Force: true})
	},

	"list-nodes": func(ctx context.Context, c *client.Client) (any, error) { return c.Nodes.List(ctx, lo) },
	"get-node":   func(ctx context.Context, c *client.Client) (any, error) { return c.Nodes.Get(ctx, "x", ro) },
	"cordon-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Nodes.Cordon(ctx, "x", api.IntentBody{}, wo)
	},
	"uncordon-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Nodes.Uncordon(ctx, "x", api.IntentBody{}, wo)
	},
	"disable-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Nodes.Disable(ctx, "x", api.IntentBody{}, wo)
	},
	"enable-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Nodes.Enable(ctx, "x", api.IntentBody{}, wo)
	},
	"drain-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Nodes.Drain(ctx, "x", api.DrainChoices{}, wo)
	},
	"ack-blockers-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Nodes.AckBlockers(ctx, "x", api.AckBody{}, wo)
	},
	"confirm-dead-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Nodes.ConfirmDead(ctx, "x", api.DeadBody{}, wo)
	},
	"label-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Nodes.Label(ctx, "x", api.LabelBody{}, wo)
	},
	"forget-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Nodes.Forget(ctx, "x", client.ForgetOptions{WriteOptions: wo, LoseData: []string{"a/b", "c/d"}})
	},

	"list-services": func(ctx context.Context, c *client.Client) (any, error) { return c.Services.List(ctx, lo) },
	"get-service":   func(ctx context.Context, c *client.Client) (any, error) { return c.Services.Get(ctx, "x", ro) },
	"prometheus-discovery": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Services.PrometheusTargets(ctx)
	},

	"get-settings": func(ctx context.Context, c *client.Client) (any, error) { return c.Settings.Get(ctx, ro) },
	"set-settings": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Settings.Set(ctx, map[string]any{"event_limit": 5}, co)
	},
	"pause-actuation": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Settings.Pause(ctx, api.PauseBody{}, wo)
	},
	"resume-actuation": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Settings.Resume(ctx, api.PauseBody{}, wo)
	},

	"save-snapshot": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Snapshots.Save(ctx, client.Stale)
	},
	"restore-snapshot": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Snapshots.Restore(ctx, strings.NewReader("state"), 5)
	},

	"list-tokens": func(ctx context.Context, c *client.Client) (any, error) { return c.Tokens.List(ctx, lo) },
	"create-token": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Tokens.Create(ctx, api.TokenBody{}, wo)
	},
	"revoke-token": func(ctx context.Context, c *client.Client) (any, error) { return c.Tokens.Revoke(ctx, "x", wo) },

	"get-ca": func(ctx context.Context, c *client.Client) (any, error) { return c.CA.Status(ctx, ro) },
	"rotate-ca": func(ctx context.Context, c *client.Client) (any, error) {
		return c.CA.Rotate(ctx, api.RotateCABody{}, wo)
	},

	"list-certificates": func(ctx context.Context, c *client.Client) (any, error) { return c.Certificates.List(ctx, lo) },
	"create-certificate": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Certificates.Create(ctx, api.CertificateBody{}, wo)
	},
	"revoke-certificate": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Certificates.Revoke(ctx, "x", api.RevokeBody{}, wo)
	},

	"list-trust-members": func(ctx context.Context, c *client.Client) (any, error) { return c.Trust.Members(ctx, lo) },
	"list-newcomers":     func(ctx context.Context, c *client.Client) (any, error) { return c.Trust.Newcomers(ctx, lo) },
	"approve-newcomer": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Trust.ApproveNewcomer(ctx, model.Subject{Kind: model.SubjectAgent, Name: "x"}, api.NewcomerBody{}, wo)
	},
	"reject-newcomer": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Trust.RejectNewcomer(ctx, model.Subject{Kind: model.SubjectAgent, Name: "x"}, api.NewcomerBody{}, wo)
	},
	"revoke-node": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Trust.RevokeNode(ctx, "x", api.RevokeBody{}, wo)
	},
	"revoke-member": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Trust.RevokeServer(ctx, "x", api.RevokeBody{}, client.RevokeServerOptions{WriteOptions: wo, Unknown: true,
			Force: true})
	},
	"list-gossip-keys": func(ctx context.Context, c *client.Client) (any, error) { return c.Trust.GossipKeys(ctx, ro) },
	"rotate-gossip-key": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Trust.RotateGossipKey(ctx, client.RotateGossipOptions{WriteOptions: wo, Force: true})
	},

	"get-keyring":    func(ctx context.Context, c *client.Client) (any, error) { return c.Trust.Keyring(ctx) },
	"rotate-keyring": func(ctx context.Context, c *client.Client) (any, error) { return c.Trust.RotateKeyring(ctx, wo) },
	"prune-keyring":  func(ctx context.Context, c *client.Client) (any, error) { return c.Trust.PruneKeyring(ctx, wo) },
	"keyring-exported": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Trust.KeyringExported(ctx, api.ExportedBody{}, wo)
	},

	"list-volumes": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Volumes.List(ctx, client.VolumeListOptions{ListOptions: lo, Job: "x", Node: "x"})
	},
	"get-volume": func(ctx context.Context, c *client.Client) (any, error) { return c.Volumes.Get(ctx, "x", ro) },
	"migrate-volume": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Volumes.Migrate(ctx, "x", api.MigrateBody{}, wo)
	},
	"backup-volume": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Volumes.Backup(ctx, "x", api.BackupBody{}, wo)
	},
	"attach-volume": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Volumes.Attach(ctx, "x", api.AttachBody{}, wo)
	},
	"found-volumes": func(ctx context.Context, c *client.Client) (any, error) { return c.Volumes.Found(ctx) },

	"list-transfers": func(ctx context.Context, c *client.Client) (any, error) { return c.Transfers.List(ctx, lo) },
	"get-transfer":   func(ctx context.Context, c *client.Client) (any, error) { return c.Transfers.Get(ctx, "x", ro) },
	"cancel-transfer": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Transfers.Cancel(ctx, "x", wo)
	},

	"page-stream": callPage,
	"series":      callSeries,
	"events": func(ctx context.Context, c *client.Client) (any, error) {
		for _, o := range []client.EventOptions{{After: "1.0"}, {Since: "1h"},
			{Tail: new(3), Types: []string{"node."}, Subjects: []string{"job/"}}} {
			for _, err := range c.Events.List(ctx, o) {
				return nil, err
			}
		}
		return nil, nil
	},
}
