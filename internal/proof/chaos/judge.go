package chaos

import (
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/check"
)

// whole is the shortest run that has to contain all that it is made for.
const whole = time.Minute

// Effects that are counted here and judged by package check.
const (
	effectCompactions = "compactions"
	effectLeaders     = "leader changes"
	effectUncaused    = "leader changes without a cause"
	effectLateCopies  = "late copies applied"
)

// declare records for the checkers what kind of run this is.
func (env *Env) declare(c Config) {
	longest := time.Duration(0)
	for _, p := range env.Processes {
		longest = max(longest, p.plan.ttl)
	}
	set := env.Recorder.Set
	set("seed", strconv.FormatUint(uint64(env.Seed), 10))
	set(check.SettingSuite, "concurrency")
	set(check.SettingTTL, longest.String())
	DeclareRequests(env.Recorder)
	set(check.ToleratePrefix+effectUncaused, "3") // else the machine was too busy to keep etcd's time
	if c.Duration >= whole && c.All() {
		for _, effect := range []string{check.EffectExpiries, check.EffectEvictions, check.EffectUnknown, check.EffectGrants, check.EffectShared, check.EffectStarts, check.EffectAttempts, check.EffectReplays, check.EffectTokens, check.EffectLimits, effectCompactions, effectLeaders} {
			set(check.RequirePrefix+effect, "1")
		}
	}
}

// count hands what was counted beside the history to it.
func (env *Env) count() {
	for _, effect := range []string{effectCompactions, effectLeaders, effectUncaused, effectLateCopies} {
		env.Recorder.Count(effect, int64(env.Stats.Get(effect)))
	}
}

// Judge has the run's history judged.
func (r *Result) Judge() (*check.Report, []check.Checker, error) {
	checkers, err := check.Suite(r.History)
	if err != nil {
		return nil, nil, err
	}
	return check.Judge(r.History, checkers...), checkers, nil
}
