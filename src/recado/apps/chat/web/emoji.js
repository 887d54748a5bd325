// Emoji by group, each with its shortcodes; the first is the name in lists.
const GROUPS = {
  Smileys: `😀 grinning|😃 smiley|😄 smile|😁 grin|😅 sweat_smile|😂 joy|🤣 rofl|🙂 slightly_smiling_face|🙃 upside_down_face|😉 wink|😊 blush|😇 innocent|🥰 smiling_face_with_hearts|😍 heart_eyes|😘 kissing_heart|😋 yum|😛 stuck_out_tongue|😜 stuck_out_tongue_winking_eye|🤪 zany_face|🤗 hugs|🤔 thinking|🤨 raised_eyebrow|😐 neutral_face|😑 expressionless|😶 no_mouth|😏 smirk|😒 unamused|🙄 roll_eyes|😬 grimacing|😌 relieved|😔 pensive|😪 sleepy|😴 sleeping|😷 mask|🤒 face_with_thermometer|🤯 exploding_head|🥳 partying_face|😎 sunglasses|🤓 nerd_face|😕 confused|😟 worried|🙁 slightly_frowning_face|😮 open_mouth|😯 hushed|😲 astonished|😳 flushed|🥺 pleading_face|😦 frowning|😨 fearful|😰 cold_sweat|😥 disappointed_relieved|😢 cry|😭 sob|😱 scream|😖 confounded|😞 disappointed|😓 sweat|😩 weary|😫 tired_face|🥱 yawning_face|😤 triumph|😡 rage|😠 angry|💀 skull|💩 poop|🤡 clown_face|👻 ghost|👽 alien|🤖 robot`,
  People: `👋 wave|✋ raised_hand|👌 ok_hand|🤞 crossed_fingers|✌️ v|🤟 love_you_gesture|🤘 metal|👈 point_left|👉 point_right|👆 point_up_2|👇 point_down|👍 +1 thumbsup|👎 -1 thumbsdown|✊ fist|👊 facepunch|👏 clap|🙌 raised_hands|👐 open_hands|🤝 handshake|🙏 pray|✍️ writing_hand|💪 muscle|👀 eyes|🧠 brain|🗣️ speaking_head|🤦 facepalm|🤷 shrug|🙋 raising_hand|🏃 running|💃 dancer|👨‍💻 man_technologist|👩‍💻 woman_technologist`,
  Nature: `🐶 dog|🐱 cat|🐭 mouse|🐰 rabbit|🦊 fox_face|🐻 bear|🐼 panda_face|🐧 penguin|🐦 bird|🦉 owl|🐢 turtle|🐍 snake|🐙 octopus|🦀 crab|🐝 bee|🐛 bug|🦋 butterfly|🐌 snail|🌵 cactus|🌲 evergreen_tree|🍀 four_leaf_clover|🍁 maple_leaf|🌸 cherry_blossom|🌻 sunflower|🌍 earth_africa|🌙 crescent_moon|⭐ star|🌟 star2|✨ sparkles|⚡ zap|🔥 fire|💥 boom|☀️ sunny|☁️ cloud|🌧️ cloud_with_rain|❄️ snowflake|🌈 rainbow|💧 droplet`,
  Food: `🍏 green_apple|🍎 apple|🍊 tangerine|🍋 lemon|🍌 banana|🍉 watermelon|🍇 grapes|🍓 strawberry|🍒 cherries|🍅 tomato|🥕 carrot|🌶️ hot_pepper|🥑 avocado|🍞 bread|🥐 croissant|🧀 cheese|🍳 egg|🍔 hamburger|🍟 fries|🍕 pizza|🌮 taco|🍜 ramen|🍣 sushi|🍪 cookie|🎂 birthday|🍰 cake|🍫 chocolate_bar|🍿 popcorn|☕ coffee|🍵 tea|🍺 beer|🍻 beers|🥂 clinking_glasses|🍷 wine_glass`,
  Activities: `⚽ soccer|🏀 basketball|🎾 tennis|🏓 ping_pong|🎯 dart|🎮 video_game|🎲 game_die|🎉 tada|🎊 confetti_ball|🎈 balloon|🎁 gift|🏆 trophy|🥇 1st_place_medal|🎵 musical_note|🎸 guitar|🎨 art|🚗 car|🚌 bus|🚲 bike|✈️ airplane|🚀 rocket|⛵ sailboat|🏠 house|🏢 office|🏖️ beach_umbrella|⛰️ mountain|⏰ alarm_clock|⌛ hourglass`,
  Objects: `💻 computer|🖥️ desktop_computer|⌨️ keyboard|📱 iphone|☎️ phone|🔋 battery|💡 bulb|🔦 flashlight|🔧 wrench|🔨 hammer|⚙️ gear|🧰 toolbox|🔑 key|🔒 lock|🔓 unlock|📦 package|📫 mailbox|✉️ envelope|📨 incoming_envelope|📝 memo|📎 paperclip|📌 pushpin|📅 date|📈 chart_with_upwards_trend|📉 chart_with_downwards_trend|📊 bar_chart|📚 books|📖 book|🔍 mag|🔔 bell|🧪 test_tube|🩹 adhesive_bandage|💊 pill|💰 moneybag|🗑️ wastebasket`,
  Symbols: `❤️ heart|🧡 orange_heart|💛 yellow_heart|💚 green_heart|💙 blue_heart|💜 purple_heart|🖤 black_heart|💔 broken_heart|💯 100|✅ white_check_mark|☑️ ballot_box_with_check|✔️ heavy_check_mark|❌ x|❓ question|❗ exclamation|⚠️ warning|🚫 no_entry_sign|⛔ no_entry|🔴 red_circle|🟡 yellow_circle|🟢 green_circle|🔵 blue_circle|➡️ arrow_right|⬅️ arrow_left|⬆️ arrow_up|⬇️ arrow_down|🔄 arrows_counterclockwise|♻️ recycle|➕ heavy_plus_sign|➖ heavy_minus_sign|💤 zzz|🏁 checkered_flag`,
};

export const groups = Object.entries(GROUPS).map(([name, text]) => ({
  name,
  emoji: text.split("|").map((each) => {
    const [symbol, ...codes] = each.split(" ");
    return { symbol, codes };
  }),
}));

const all = groups.flatMap((each) => each.emoji);
const byCode = new Map(all.flatMap(({ symbol, codes }) => codes.map((code) => [code, symbol])));

// `:tada:` becomes 🎉; unknown codes stay as they are.
export const replaceCodes = (text) => text.replace(/(?<![\p{L}\p{N}:/]):([a-z0-9_+-]+):(?![\p{L}\p{N}])/giu, (found, code) => byCode.get(code.toLowerCase()) ?? found);

// Those whose codes begin with a text come before those that contain it.
export function findEmoji(text, limit = 8) {
  const wanted = text.toLowerCase();
  const ranked = [];
  for (const each of all) {
    const at = Math.min(...each.codes.map((code) => (code.startsWith(wanted) ? 0 : code.includes(wanted) ? 1 : 2)));
    if (at < 2) ranked.push([at, each]);
  }
  return ranked.sort((one, other) => one[0] - other[0]).slice(0, limit).map(([, each]) => each);
}
