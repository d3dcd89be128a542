// Draws the figures marked with data-chart: lines over time with axes, units and a zero line, in the page's colours.
(function () {
  "use strict";

  var HEIGHT = 190;
  var drawn = [];

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function seconds(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    if (value < 1) return Number((value * 1000).toPrecision(3)).toLocaleString() + " ms";
    if (value < 120) return Number(value.toPrecision(3)).toLocaleString() + " s";
    if (value < 7200) return Number((value / 60).toPrecision(3)).toLocaleString() + " min";
    return Number((value / 3600).toPrecision(3)).toLocaleString() + " h";
  }

  function plain(value) {
    return value === null || value === undefined ? "–" : value.toLocaleString();
  }

  // Axis labels in the viewer's own way of writing times; days only where the chart spans more than one.
  function instants(step, values) {
    if (step === 86400) {
      // Days are those of UTC, whatever the viewer's zone; over many of them, months are enough.
      var day = values.length > 1 && values[1] - values[0] >= 28 * 86400 ? undefined : "numeric";
      return values.map(function (at) {
        return new Date(at * 1000).toLocaleDateString(undefined, { day: day, month: "short", year: "numeric", timeZone: "UTC" });
      });
    }
    var long = values.length > 1 && values[values.length - 1] - values[0] > 86400;
    var seconds = values.length > 1 && values[1] - values[0] < 60;
    return values.map(function (at) {
      var date = new Date(at * 1000);
      var time = date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined });
      return long ? date.toLocaleDateString(undefined, { day: "numeric", month: "short" }) + "\n" + time : time;
    });
  }

  // A dashed line, and the version beside it, where new code came.
  function marks(found) {
    return {
      hooks: {
        draw: function (plot) {
          var ctx = plot.ctx;
          ctx.save();
          ctx.strokeStyle = ctx.fillStyle = colour("--soft");
          ctx.font = 11 * devicePixelRatio + "px system-ui, sans-serif";
          ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
          found.forEach(function (mark) {
            var x = Math.round(plot.valToPos(mark[0], "x", true));
            if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) return;
            ctx.beginPath();
            ctx.moveTo(x, plot.bbox.top);
            ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
            ctx.stroke();
            var text = mark[1].slice(0, 24);
            var left = x + ctx.measureText(text).width + 8 * devicePixelRatio > plot.bbox.left + plot.bbox.width;
            ctx.textAlign = left ? "right" : "left";
            ctx.fillText(text, x + (left ? -4 : 4) * devicePixelRatio, plot.bbox.top + 11 * devicePixelRatio);
          });
          ctx.restore();
        },
      },
    };
  }

  function options(element, told) {
    var say = told.unit === "s" ? seconds : plain;
    var axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    var lines = told.series.map(function (each) {
      return {
        label: each.label,
        stroke: colour("--" + each.tone),
        dash: each.dash ? [5, 4] : undefined,
        width: 1.5,
        spanGaps: false,
        points: { show: told.data[0].length < 3, size: 5 },
        value: function (_, value) { return value === null || value === undefined ? "" : say(value); },
      };
    });
    return {
      width: Math.max(element.clientWidth, 120),
      height: HEIGHT,
      padding: [null, 42, null, null], // half of the last label, which would be cut off
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { live: true, markers: { fill: function (plot, index) { return plot.series[index].stroke(plot, index); } } },
      tzDate: told.step === 86400 ? function (at) { return uPlot.tzDate(new Date(at * 1000), "Etc/UTC"); } : undefined,
      scales: { y: { range: function (_, low, high) { return [0, high > 0 ? high * 1.08 : 1]; } } },
      axes: [Object.assign({ space: 80, size: 36, values: function (_, values) { return instants(told.step, values); } }, axis), Object.assign({}, axis, {
        size: 62,
        values: function (_, values) { return values.map(say); },
        incrs: told.unit === "s" ? undefined : [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6],
      })],
      series: [{ label: "\u00a0", value: function (_, at) { return at ? told.step === 86400 ? instants(86400, [at])[0] : new Date(at * 1000).toLocaleString() : ""; } }].concat(lines),
      plugins: [marks(told.marks)],
    };
  }

  function draw(element) {
    var told = JSON.parse(element.dataset.chart);
    element.textContent = "";
    if (told.data[0].length === 0) {
      element.textContent = "Nothing was seen yet; this fills while the dashboard runs.";
      return;
    }
    drawn.push([element, new uPlot(options(element, told), told.data, element)]);
  }

  function all() {
    drawn.forEach(function (each) { each[1].destroy(); });
    drawn = [];
    document.querySelectorAll("[data-chart]").forEach(draw);
  }

  window.addEventListener("resize", function () {
    drawn.forEach(function (each) { each[1].setSize({ width: Math.max(each[0].clientWidth, 120), height: HEIGHT }); });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  all();
})();
