package api

import (
	"net/http"

	"github.com/outspan/outspan/transport"
)

// peerOperations is where servers put questions to each other, outside the log.
func (s *Server) peerOperations() []operation {
	rt := route{
		id: "ask-peer", method: http.MethodPost, path: transport.PathPeer + "{question}", tag: "servers",
		summary: "A question of one server to another (CBOR)", allow: forServer,
	}
	doc := document{body: transport.ContentTypeCBOR, answer: transport.ContentTypeCBOR}
	return []operation{plain(rt, doc, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Servers.Peers == nil {
			writeError(w, notOffered("answers to other servers"))
			return
		}
		if callerFrom(r.Context()).via != "" {
			writeError(w, notOffered("forwarded questions"))
			return
		}
		answer, err := s.cfg.Servers.Peers.AnswerPeer(r.Context(), r.PathValue("question"), bodyFrom(r.Context()))
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", transport.ContentTypeCBOR)
		w.Write(answer)
	}))}
}
