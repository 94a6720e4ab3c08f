package thresholds

// noThresholds are large constants, by folder, at which nothing about a value changes: bounds
// beyond which something is refused, how much is kept or may be under way, words of formats, the
// mathematics of generators.
var noThresholds = map[string]string{
	"autodiff":                      "maxPrimitives",
	"autodiff/nn":                   "maxDrawn",
	"ctx":                           "maxGraph maxLineage maxTombstones",
	"device":                        "maxAccelerator maxIndex maxPooled nudgeBytes spareOf",
	"kernels":                       "maxWindow",
	"kernels/cpu":                   "k0 k1 m0 m1",
	"kernels/cpu/internal/parallel": "mostThreads",
	"kernels/gpu":                   "columnBytes maxFaults maxParts maxStatic maxWritten mostElems updateBytes",
	"rpc":                           "defaultMaxQueued defaultMaxRunning maxCauseFields maxErrorText maxGatherings maxKept maxLabels maxObserved maxRefs maxStatus maxStatusPeers maxWatched maxWorld",
	"rpc/refs":                      "DefaultLimit",
	"transport":                     "accountsMax acquaintancesMost backlogEnd crowdsMost cudaMost cudaOffsets descriptorMax linkWindow maxCertFile maxDeviceIndex maxKeyFile maxMapped maxOffer maxOwed maxSegments maxWord outboxBytes outboxLeast quicV2 refusedCount room stageMost streamWindow",
}
