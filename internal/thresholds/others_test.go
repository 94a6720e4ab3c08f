package thresholds

// noThresholds are large constants, by folder, at which nothing about a value changes: bounds
// beyond which something is refused, how much is kept or may be under way, words of formats, the
// mathematics of generators.
var noThresholds = map[string]string{
	"autodiff":                      "maxPrimitives",
	"collective":                    "aheadWindow maxCount maxSlots maxVoters pages traced tuneFrom tuneSpread tuneTo",
	"collective/internal/desk":      "Ahead AheadBytes Scopes",
	"collective/internal/narrow":    "infinite shift",
	"collective/gpus":               "mostSaid",
	"collective/internal/postbox":   "MostOffers Window",
	"autodiff/nn":                   "maxDrawn",
	"ctx":                           "maxGraph maxLineage maxTombstones",
	"device":                        "maxAccelerator maxIndex maxJointBytes maxPooled nudgeBytes spareOf",
	"kernels":                       "maxWindow",
	"kernels/cpu":                   "k0 k1 m0 m1",
	"kernels/cpu/internal/parallel": "mostThreads",
	"kernels/gpu":                   "align columnBytes maxFaults maxParts maxStatic maxWritten mostElems updateBytes",
	"rpc":                           "defaultMaxQueued defaultMaxRunning maxCauseFields maxErrorText maxGatherings maxKept maxObserved maxStatus maxStatusGroups maxStatusPeers",
	"rpc/internal/codec":            "MaxRefs",
	"rpc/internal/counts":           "MaxLabels",
	"rpc/internal/membership":       "MaxWatched MaxWorld",
	"rpc/internal/refs":             "DefaultLimit",
	"transport/internal/bulk":       "maxOwed",
	"transport/internal/cudaipc":    "mostBytes offsetMask outboxBytes outboxLeast",
	"transport/internal/identity":   "maxCertFile maxKeyFile",
	"transport/internal/lane":       "MaxOffer MaxWord refusedCount",
	"transport/internal/link":       "acquaintancesMost crowdsMost datagramMost descriptorMax quicV2 streamWindow trainBytes",
	"transport/internal/mux":        "backlogEnd",
	"transport/internal/places":     "AccountsMax",
	"transport/internal/quicstream": "LinkWindow",
	"transport/internal/shm":        "maxMapped maxSegments room stageMost",
	"transport/internal/wire":       "maxDeviceIndex",
}
