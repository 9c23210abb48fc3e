package httpapi

import (
	"net/http"

	"github.com/outspan/outspan/transport"
)

// peerOperations returns the operations that only other servers call.
func (s *Server) peerOperations() []operation {
	ask := route{id: "ask-peer", path: transport.PathPeer + "{question}",
		summary: "A question of one server to another (CBOR)"}
	relay := route{id: "relay-agents", path: transport.PathPeerRelay,
		summary: "Calls of agents, from the server that they asked to the leader (CBOR)"}
	return []operation{
		s.peerCall(ask, func(r *http.Request) ([]byte, error) {
			if s.cfg.Servers.Peers == nil {
				return nil, notOffered("answers to other servers")
			}
			return s.cfg.Servers.Peers.AnswerPeer(r.Context(), r.PathValue("question"), bodyFrom(r.Context()))
		}),
		s.peerCall(relay, func(r *http.Request) ([]byte, error) { return s.answerRelay(r.Context(), bodyFrom(r.Context())) }),
	}
}

// peerCall makes an operation that only servers may call. Both bodies are CBOR. It refuses forwarded requests.
func (s *Server) peerCall(rt route, answer func(*http.Request) ([]byte, error)) operation {
	rt.method, rt.tag, rt.allow = http.MethodPost, "servers", forServer
	doc := document{body: transport.ContentTypeCBOR, answer: transport.ContentTypeCBOR}
	return plain(rt, doc, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if callerFrom(r.Context()).via != "" {
			writeError(w, notOffered("forwarded questions"))
			return
		}
		out, err := answer(r)
		answerCBOR(w, out, err)
	}))
}

func answerCBOR(w http.ResponseWriter, answer []byte, err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", transport.ContentTypeCBOR)
	w.Write(answer)
}
