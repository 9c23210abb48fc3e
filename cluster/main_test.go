package cluster

import (
	"os"
	"testing"

	"github.com/outspan/outspan/internal/draw"
)

func TestMain(m *testing.M) { os.Exit(draw.Main(m)) }
