package vec

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMin(t *testing.T) {
	if os.Getenv("VECMIN") == "" {
		t.Skip()
	}
	minOf[float32]()
	minOf[float64]()
}

func minOf[T Float]() {
	const n = 1000
	rows := [4][]T{}
	for k := range rows {
		rows[k] = make([]T, n+64*k)[:n]
		for j := range rows[k] {
			rows[k][j] = T(j%97)/97*T(k+1) + 0.01
		}
	}
	acc := make([]float64, n)
	for _, l := range All[T]() {
		if l.Name == "plain" {
			continue
		}
		v := reflect.ValueOf(l).Elem()
		for k := range v.NumField() {
			run := call(v.Field(k).Interface(), rows, acc)
			if run == nil || !strings.Contains(os.Getenv("VECMIN"), v.Type().Field(k).Name) && os.Getenv("VECMIN") != "all" {
				continue
			}
			m := time.Hour
			for range 300 {
				s := time.Now()
				for range 20 {
					run()
				}
				m = min(m, time.Since(s))
			}
			fmt.Printf("%-14s %T %s %.3f\n", v.Type().Field(k).Name, *new(T), l.Name, float64(m.Nanoseconds())/20/n)
		}
	}
}
