// Which series stand in which plot, for each screen that has plots.

/** @typedef {{ name: string, text: string, maybe?: boolean }} Line maybe: left out while it is 0 */
/** @typedef {{ title: string, verb: string, lines: Line[] }} Chart */

/** @type {Chart[]} */
export const fleetCharts = [
  {
    title: 'Memory',
    verb: 'node.read',
    lines: [
      { name: 'memory_allocated', text: 'allocated' },
      { name: 'memory_used', text: 'used by the machines' },
      { name: 'memory_capacity', text: 'capacity' },
    ],
  },
  {
    title: 'CPU',
    verb: 'node.read',
    lines: [
      { name: 'cpu_allocated', text: 'allocated' },
      { name: 'cpu_used', text: 'used by the machines' },
      { name: 'cpu_capacity', text: 'capacity' },
    ],
  },
  {
    title: 'Nodes',
    verb: 'node.read',
    lines: [
      { name: 'nodes_active', text: 'active' },
      { name: 'nodes_draining', text: 'draining' },
      { name: 'nodes_cordoned', text: 'cordoned', maybe: true },
      { name: 'nodes_offline', text: 'offline', maybe: true },
    ],
  },
  {
    title: 'Instances',
    verb: 'instance.read',
    lines: [
      { name: 'instances_ready', text: 'ready' },
      { name: 'instances_wanted', text: 'wanted' },
      { name: 'instances_ending', text: 'ending', maybe: true },
      { name: 'instances_lost', text: 'lost', maybe: true },
    ],
  },
]
/** @type {Chart[]} */
export const nodeCharts = [
  {
    title: 'Memory',
    verb: 'node.read',
    lines: [
      { name: 'node_memory_allocated', text: 'allocated' },
      { name: 'node_memory_used', text: 'used by the machine' },
    ],
  },
  {
    title: 'CPU',
    verb: 'node.read',
    lines: [
      { name: 'node_cpu_allocated', text: 'allocated' },
      { name: 'node_cpu_used', text: 'used by the machine' },
    ],
  },
]
/** @type {Chart[]} */
export const jobCharts = [
  {
    title: 'Instances',
    verb: 'job.read',
    lines: [
      { name: 'job_ready', text: 'ready' },
      { name: 'job_wanted', text: 'wanted' },
      { name: 'job_running', text: 'should run', maybe: true },
    ],
  },
]
/** @type {Chart[]} */
export const serverCharts = [
  { title: 'Log entries', verb: 'server.read', lines: [{ name: 'raft_entries', text: 'applied' }] },
  { title: 'Behind', verb: 'server.read', lines: [{ name: 'raft_silence', text: 'not known to be current, for' }] },
  {
    title: 'Disk and apply',
    verb: 'server.read',
    lines: [
      { name: 'sync_mean', text: 'append with fsync, mean' },
      { name: 'sync_max', text: 'longest append' },
      { name: 'apply_max', text: 'longest apply' },
    ],
  },
  {
    title: 'Memory of the process',
    verb: 'server.read',
    lines: [
      { name: 'server_memory', text: 'resident' },
      { name: 'server_heap', text: 'heap' },
    ],
  },
]
