// Package postbox matches the messages that members send one another with those that they wait for.
// It is pure: no I/O, no clock, no lock.
//
// A [Box] is one member's. A message goes to the first receive that fits: from that sender, or from
// anyone, with that tag. A receive gets the first message that fits, in the order of sending. So
// tags do not hold one another up. Messages may overtake one another on their way; the box puts
// them in order by the numbers that senders give them.
//
// # What waits is bounded
//
// A small message comes with its bytes, which the box holds until somebody receives it; a sender
// may have [Window] bytes there. Any other comes as an offer, without its bytes: these are fetched
// when a receive has matched it. A sender may have [MostOffers] there. So no message waits for
// another one, and what a member can make another hold is bounded in number and in bytes.
package postbox
