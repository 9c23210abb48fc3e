package api

// InstanceDisk is an instance's disk limit, and whether it is above it.
type InstanceDisk struct {
	LimitBytes int64 `json:"limit_bytes" doc:"0: the job file sets none"`
	Above      bool  `json:"above" doc:"the last measurement found more than the limit"`
	UsedBytes  int64 `json:"used_bytes" doc:"below its work directory; 0 unless it is above its limit"`
	AtLeast    bool  `json:"at_least" doc:"the agent could not measure everything there"`

	Next string `json:"next" doc:"the way out; empty unless it is above its limit"`
}
