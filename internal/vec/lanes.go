//go:build goexperiment.simd && amd64

package vec

import "math"

// lanes is a constant in every lane. Loading one takes no port that arithmetic needs, as
// broadcasting would.
type lanes [16]float32

func spread(c float64) (l lanes) {
	for k := range l {
		l[k] = float32(c)
	}
	return l
}

// k is the constants. They are never written.
var k = newConstants()

type constants struct {
	zero, one, two, minusHalf, sign lanes
	infinity, notNumber             lanes

	minusLn2, minusLn2Rest           lanes
	expLow, expHigh, log2e, rounder  lanes
	expGone                          lanes
	expP                             [5]lanes
	normal, normalize, normalizeLog  lanes
	logP                             [5]lanes
	logQ                             [4]lanes
	tanhSmall                        lanes
	tanhP                            [5]lanes
	tailEnd, tailK, tail2K, tailLast lanes
	tailP                            [5]lanes
	tailQ                            [4]lanes
	invSqrt2Pi                       lanes
	count                            [8]int32 // 0, 1, 2 …; last, so that the others stay on cache lines
}

// newConstants makes them on the heap, which puts an object of this size on a cache line; a vector
// across two lines takes two loads. The polynomials are minimax fits (Remez exchange, of the
// relative error of the whole function), highest power first. The reduction of exp and log in two
// steps is after Cody and Waite, "Software Manual for the Elementary Functions" (1980).
//
//go:noinline
func newConstants() *constants {
	return &constants{
		zero: spread(0), one: spread(1), two: spread(2), minusHalf: spread(-0.5), sign: spread(math.Copysign(0, -1)),
		infinity: spread(math.Inf(1)), notNumber: spread(math.NaN()),

		// −ln 2 as a float32, and what that lacks.
		minusLn2: spread(-math.Ln2), minusLn2Rest: spread(float64(float32(math.Ln2)) - math.Ln2),

		// exp x = 2ⁿ(1 + r + r²·P(r)) with x = n·ln2 + r, |r| ≤ ln2/2; the fit's error is 3e-9.
		// Adding rounder rounds to whole numbers.
		expLow: spread(-120), expHigh: spread(89), // beyond, it is 0 or infinity
		expGone: spread(-103.98), // from here on it is 0 in float32
		log2e:   spread(math.Log2E), rounder: spread(3 << 22),
		expP: [5]lanes{spread(0.001381314334), spread(0.008369418838), spread(0.04166845681), spread(0.1666651479), spread(0.4999999305)},

		// log x = n·ln2 + f − f²/2 + f³·P(f) with x = 2ⁿ(1+f), √½ ≤ 1+f < √2; error 7e-10. What is
		// below normal is multiplied by 2²³ before.
		normal: spread(0x1p-126), normalize: spread(0x1p23), normalizeLog: spread(23),
		logP: [5]lanes{spread(0.06746639057), spread(-0.1167565032), spread(0.1188816208), spread(-0.1240558916), spread(0.1421955242)},
		logQ: [4]lanes{spread(-0.1666799584), spread(0.2000211866), spread(-0.250000096), spread(0.333333126)},

		// tanh x = x + x³·P(x²) below tanhSmall; error 4e-9.
		tanhSmall: spread(0.625),
		tanhP:     [5]lanes{spread(-0.005704987399), spread(0.02063908761), spread(-0.0537397152), spread(0.133314422), spread(-0.3333328194)},

		// Φ(−a) = exp(−a²/2)·P(t)/(a+K), with K = 3.5 and t = (a−K)/(a+K) = 1 − 2K/(a+K), for a
		// below tailEnd, from where on it is 0; error 7e-9.
		tailEnd: spread(15), tailK: spread(3.5), tail2K: spread(-7),
		tailP:      [5]lanes{spread(0.0001106872282), spread(0.0004218943008), spread(-0.0004949429805), spread(-0.003175307796), spread(0.00649311623)},
		tailQ:      [4]lanes{spread(0.01740637759), spread(-0.1160530409), spread(0.3154250488), spread(-0.5655617451)},
		tailLast:   spread(0.7444160741),
		invSqrt2Pi: spread(0.3989422804014326779399460599343818684758586311649),

		count: [8]int32{0, 1, 2, 3, 4, 5, 6, 7},
	}
}

// isSet is x != 0, by integers: the compiler may put a comparison of floats in the loop, where it
// would wait for the vectors each time.
func isSet(x float32) bool { return math.Float32bits(x)<<1 != 0 }
