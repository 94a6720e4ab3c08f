// Store measures Weft's store between processes of this machine: one server, and clients beside it.
// bench/torch/store.py does the same with torch's TCPStore and prints lines of the same form; `make
// peers PEERS='-only store'` runs both in turns.
//
//	go run ./bench/store [-only round,rate,echo,wake,keys,stall,ways,silent] [-server HOST:PORT]
//
// Every process here is this program: it starts itself again as the server and as each client. With
// -server it measures one that runs already, a torch's too.
package main
