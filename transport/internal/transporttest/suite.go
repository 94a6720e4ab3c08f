package transporttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Make gives two networks of one job: one to dial from, one to listen at. They may be the same.
type Make func(t testing.TB) (dialer, listener wire.Network)

// Run runs the suite. Each test has a link of its own and ends without goroutines or host buffers
// left.
func Run(t *testing.T, mk Make) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, p *Pair)
	}{
		{"MessagesOfAStreamArriveInOrder", inOrder},
		{"BothDirectionsCarryMessagesAtOnce", bothWays},
		{"TwoHundredStreamsAtOnceGetTheirOwnAnswers", manyStreams},
		{"TensorsOfEveryTypeArriveAsSent", tensors},
		{"TensorsOfSizesAroundThresholdsArriveAsSent", sizes},
		{"ATensorLandsWhereTheReceiverPlacesIt", placed},
		{"ATensorOnASimulatedDeviceTravelsThroughTheHost", simulated},
		{"AFailingPlaceReleasesWhatHasArrived", failingPlace},
		{"SendNeitherKeepsNorReleasesABuffer", borrowed},
		{"AMessageThatMayNotBeSentLeavesTheStreamUsable", refusedMessage},
		{"AHalfClosedStreamStillCarriesTheOtherDirection", halfClose},
		{"AMessageThatSaysEndEndsItsDirection", endInMessage},
		{"AFinishedStreamsContextSaysSo", finishedContext},
		{"AResetIsSeenByAPeerThatReceives", resetSeenByReceiver},
		{"AResetIsSeenByAPeerThatOnlyWorks", resetSeenByWorker},
		{"AResetUnblocksThisSide", resetUnblocks},
		{"ResetAfterTheEndDoesNothing", resetAfterEnd},
		{"AnAnswerSurvivesAResetWithoutReason", answerSurvives},
		{"CancellationInterruptsRecv", cancelRecv},
		{"ADeadlineInterruptsRecv", deadlineRecv},
		{"CancellationInterruptsASendThatWaits", cancelSend},
		{"AContextThatEndsAfterTheCallLeavesTheStreamUsable", lateCancel},
		{"CancellationInterruptsAccept", cancelAccept},
		{"WhoServesGetsEveryStreamAndIsToldWhatHasArrivedWhole", serve},
		{"StreamsThatAreResetMakeRoomForOthers", streamCredit},
		{"AnOrderlyCloseTellsThePeerWhy", orderlyClose},
		{"ALinksEndEndsItsStreams", endOfLink},
		{"AClosedListenerAcceptsNothing", closedListener},
		{"DialGivesUpWithItsContext", dialContext},
	} {
		t.Run(test.name, func(t *testing.T) {
			leak.Check(t)
			test.run(t, Link(t, mk))
		})
	}
}

// Pair is a link, seen from both ends.
type Pair struct {
	C              context.Context // ends with the test; who bounds a test's time bounds its machine's, so what hangs does so until go test says where
	Dialer         wire.Network
	Listener       wire.Listener
	Dialed, Served wire.Link
}

// Link makes a link that is closed when the test ends.
func Link(t testing.TB, mk Make) *Pair {
	c, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	dialer, network := mk(t)
	l, err := network.Listen(c, "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	p := &Pair{C: c, Dialer: dialer, Listener: l}
	p.Dialed, err = dialer.Dial(c, l.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Dialed.Close("the test is over")) })
	p.Served, err = l.Accept(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Served.Close("the test is over")) })
	return p
}

// Stream opens a stream and brings it to the other end with a first message.
func (p *Pair) Stream(t testing.TB) (here, there wire.Stream) {
	here, err := p.Dialed.Open(p.C)
	require.NoError(t, err)
	require.NoError(t, here.Send(p.C, text("first")))
	there, err = p.Served.Accept(p.C)
	require.NoError(t, err)
	p.expect(t, there, "first")
	return here, there
}

func text(s string) *wire.Message { return &wire.Message{Kind: 7, Header: []byte(s)} }

// expect receives a message with that header and no tensors.
func (p *Pair) expect(t testing.TB, s wire.Stream, want string) {
	m, err := s.Recv(p.C, nil)
	require.NoError(t, err)
	require.Equal(t, uint8(7), m.Kind)
	require.Equal(t, want, string(m.Header))
	require.Empty(t, m.Tensors)
}

// done waits for a context.
func done(c context.Context) error {
	<-c.Done()
	return context.Cause(c)
}
